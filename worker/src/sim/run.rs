//! One run: workers, people, a vendor, and everything that goes wrong between them.

use super::chance::Chance;
use super::check::IN_FLIGHT;
use super::module::{Acme, VENDOR};
use super::people::People;
use super::plant::Plant;
use super::shaky::ShakyStore;
use super::vendor::Class;
use super::wire::{SimCollect, SimHands, SimWire};
use super::world::{Gate, Pulse, Ran, Roughness, SimClock, World};
use crate::{Worker, WorkerParts};
use longhaul_registry::{Connector, VendorFile};
use longhaul_store::{Chore, ConnectorState, JobState, Limits, Store};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

type Connectors = Arc<BTreeMap<String, Arc<Connector>>>;

/// How long things go wrong.
const ROUGH_MS: u64 = 40_000;
/// How long all may take to come to rest afterwards.
const REST_MS: u64 = 30 * 60_000;
/// Every lease's length.
const LEASE: Duration = Duration::from_secs(5);
/// How long a drain waits.
const DRAIN: Duration = Duration::from_secs(3);

/// Runs a seed on a thread's own, paused runtime.
pub(super) fn run(seed: u64, plant: Option<Plant>, traced: bool) -> Ran {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let Ok(runtime) = runtime else {
        return Ran { wrong: vec!["there is no runtime".to_owned()], ..Ran::default() };
    };
    let mut dice = Chance::of(seed, "dice");
    crate::testing::load_dice(Some(Box::new(move || dice.unit())));
    let world = runtime.block_on(async {
        let world = World::new(seed, plant, traced);
        Play::new(&world).play().await;
        world
    });
    crate::testing::load_dice(None);
    world.ran()
}

static CONNECTORS: LazyLock<Connectors> =
    LazyLock::new(|| Arc::new(Class::ALL.map(|class| (class.name().to_owned(), Arc::new(connector(class)))).into()));

fn connector(class: Class) -> Connector {
    let mut connector = crate::testing::connector("https://acme.test");
    let mut file: VendorFile = (*connector.vendor).clone();
    file.vendor = VENDOR.to_owned();
    (file.lost_start, file.find_s, file.absence_proves) = (class.lost_start(), 20, class.absence_proves());
    (file.asks, file.cancels) = (class.asks(), class.cancels());
    (file.cancel_erases, file.synchronous) = (class == Class::Proven, class == Class::Synchronous);
    let price = json!({"unit": "credits", "usd": "0.01", "as_of": "2026-11-30", "source": "https://acme.test"});
    file.prices = serde_json::from_value(price).into_iter().collect();
    connector.name = class.name().to_owned();
    connector.vendor = Arc::new(file);
    connector
}

/// One worker's place, and the process that is in it now.
struct Post {
    name: String,
    life: u32,
    gate: Arc<Gate>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

struct Play {
    world: Arc<World>,
    people: Arc<People>,
    chance: Chance,
    posts: Vec<Post>,
    rough: Roughness,
    /// Between two mishaps.
    pause_ms: u64,
    /// Of ten mishaps so many are a worker's death, or the next one's birth.
    deaths: u64,
}

impl Play {
    fn new(world: &Arc<World>) -> Self {
        let mut chance = Chance::of(world.seed, "play");
        let mut rate = |rates: &[u64]| chance.pick(rates).unwrap_or_default();
        let rough = Roughness { store: rate(&[0, 10, 60]), network: rate(&[0, 30, 150]), vendor: rate(&[0, 20, 100]) };
        let pause_ms = rate(&[1_000, 3_000, 10_000]);
        let deadly = chance.permille(100);
        let (pause_ms, deaths) = if deadly { (800, 8) } else { (pause_ms, 1) };
        let people = Arc::new(People::new(world, &CONNECTORS));
        Self { world: world.clone(), people, chance, posts: Vec::new(), rough, pause_ms, deaths }
    }

    async fn play(mut self) {
        let each = if self.world.has(Plant::LimitsIgnored) { 100 } else { IN_FLIGHT };
        let limits = Limits::in_flight(Class::ALL.map(|class| (class.name(), each)));
        if self.world.store.set_limits(limits).await.is_err() {
            return self.world.wrong("limits could not be set");
        }
        self.world.inner().rough = self.rough;
        self.world.inner().poison = self.chance.permille(60).then_some("job_1_");
        self.world.note(|| format!("{:?}, a mishap every {} ms", self.rough, self.pause_ms));
        for nth in 1..=self.chance.from(2..4) {
            let post = self.post(&format!("w{nth}"), 1);
            self.posts.push(post);
        }
        let upkeep = tokio::spawn(upkeep(self.world.clone()));
        let clerk = self.chance.permille(500).then(|| tokio::spawn(clerk(self.world.clone(), self.people.clone())));
        let submits = self.submits();
        while self.world.ms() < ROUGH_MS && !self.world.is_wrong() {
            let pause = self.chance.ms(self.pause_ms / 4..self.pause_ms * 2);
            sleep(pause).await;
            self.mishap().await;
        }
        self.recover();
        clerk.inspect(|clerk| clerk.abort());
        let _ = submits.await;
        self.come_to_rest().await;
        upkeep.abort();
        if !self.world.is_wrong() {
            self.world.check_all();
        }
    }

    fn submits(&mut self) -> JoinHandle<()> {
        let mut classes: Vec<Class> = Vec::new();
        for _ in 0..self.chance.from(1..4) {
            classes.extend(self.chance.pick(&Class::ALL));
        }
        let (people, jobs) = (self.people.clone(), self.chance.from(3..8));
        let mut chance = Chance::of(self.world.seed, "submits");
        tokio::spawn(async move {
            for nth in 1..=jobs {
                sleep(chance.ms(0..4_000)).await;
                let class = chance.pick(&classes).unwrap_or(Class::Keyed);
                people.submit(nth, class, &mut chance).await;
            }
        })
    }

    fn post(&mut self, name: &str, life: u32) -> Post {
        let gate = Gate::new(name, life);
        let world = &self.world;
        let wall_off_ms = if self.chance.permille(200) { 3_600_000 } else { 0 };
        let worker = Worker::new(WorkerParts {
            store: ShakyStore::new(world, &gate),
            connectors: CONNECTORS.clone(),
            vendors: vec![Arc::new(Acme { world: world.clone() })],
            wire: Arc::new(SimWire { world: world.clone(), gate: gate.clone() }),
            collect: Arc::new(SimCollect { world: world.clone() }),
            chores: Arc::new(SimHands { world: world.clone(), gate: gate.clone() }),
            clock: SimClock::new(world.origin, wall_off_ms),
            metrics: Arc::default(),
            concurrency: usize::try_from(self.chance.from(1..5)).unwrap_or(1),
            lease: LEASE,
            drain: DRAIN,
            chores_every: Duration::from_secs(5),
            learn: self.chance.permille(500),
        });
        let stop = CancellationToken::new();
        let task = tokio::spawn(worker.run(stop.clone()));
        self.world.note(|| format!("{name} begins its life {life}"));
        Post { name: name.to_owned(), life, gate, stop, task }
    }

    /// One thing that goes wrong, or that somebody does.
    async fn mishap(&mut self) {
        let at = usize::try_from(self.chance.from(0..u64::try_from(self.posts.len()).unwrap_or(1))).unwrap_or(0);
        if self.reborn(at) {
            return;
        }
        if self.chance.from(0..10) < self.deaths {
            return self.kill(at);
        }
        match self.chance.from(0..9) {
            0 | 1 => self.freeze(at),
            2 => self.drain(at).await,
            3 => self.store_goes_away(),
            4 => {
                let people = self.people.clone();
                people.answer_all().await;
            }
            _ => {
                let people = self.people.clone();
                people.meddle(&mut self.chance).await;
            }
        }
    }

    /// Another process takes the place of a dead one; `false` where it lives.
    fn reborn(&mut self, at: usize) -> bool {
        let Some(post) = self.posts.get(at).filter(|post| post.gate.is(Pulse::Dead)) else { return false };
        let (name, life) = (post.name.clone(), post.life + 1);
        let next = self.post(&name, life);
        if let Some(post) = self.posts.get_mut(at) {
            *post = next;
        }
        true
    }

    fn kill(&mut self, at: usize) {
        let Some(post) = self.posts.get(at) else { return };
        self.world.note(|| format!("{} is killed", post.name));
        post.gate.set(Pulse::Dead);
        if self.chance.permille(500) {
            post.task.abort();
        }
    }

    fn freeze(&mut self, at: usize) {
        let Some(post) = self.posts.get(at) else { return };
        let (gate, world, long) = (post.gate.clone(), self.world.clone(), self.chance.ms(500..15_000));
        self.world.note(|| format!("{} is frozen for {long:?}", post.name));
        gate.set(Pulse::Frozen);
        tokio::spawn(async move {
            sleep(long).await;
            world.note(|| format!("{} wakes up", gate.name));
            gate.set(Pulse::Runs);
        });
    }

    /// It is told to stop, and another takes its place.
    async fn drain(&mut self, at: usize) {
        let Some(post) = self.posts.get(at).filter(|post| post.gate.is(Pulse::Runs)) else { return };
        self.world.note(|| format!("{} is told to stop", post.name));
        post.stop.cancel();
        let (name, life) = (post.name.clone(), post.life + 1);
        let next = self.post(&name, life);
        if let Some(post) = self.posts.get_mut(at) {
            let before = std::mem::replace(post, next);
            drop(before.task);
        }
    }

    fn store_goes_away(&mut self) {
        let long = self.chance.from(200..9_000);
        let hangs = self.chance.permille(500);
        let until = self.world.ms() + long;
        self.world
            .note(|| format!("the store is away for {long} ms, its calls {}", if hangs { "hang" } else { "fail" }));
        let mut inner = self.world.inner();
        (inner.store_away_until, inner.store_hangs) = (until, hangs);
    }

    /// From now on everything works.
    fn recover(&mut self) {
        self.world.note(|| "everything works again");
        self.world.calm();
        for at in 0..self.posts.len() {
            let Some(post) = self.posts.get(at) else { continue };
            post.gate.set(Pulse::Runs);
            self.reborn(at);
        }
    }

    async fn come_to_rest(&mut self) {
        let rests = |job: &longhaul_store::Job| job.state.is_final() || job.state == JobState::Parked;
        let began = self.world.ms();
        let mut in_time = true;
        while in_time
            && !self.world.is_wrong()
            && !self.world.store.look(|state| state.rows.values().all(|row| rests(&row.job)))
        {
            sleep(Duration::from_secs(1)).await;
            for at in 0..self.posts.len() {
                self.reborn(at);
            }
            in_time = self.world.ms() - began < REST_MS;
        }
        for post in &self.posts {
            post.stop.cancel();
        }
        for post in self.posts.drain(..) {
            let ended = timeout(DRAIN + Duration::from_secs(20), post.task).await;
            if ended.is_err() && in_time {
                self.world.wrong(format!("{} does not stop when it is told to", post.name));
            }
        }
    }
}

/// Somebody who looks at the questions again and again.
async fn clerk(world: Arc<World>, people: Arc<People>) {
    let mut chance = Chance::of(world.seed, "clerk");
    loop {
        sleep(chance.ms(300..3_000)).await;
        people.answer_all().await;
    }
}

/// What the scheduler's services do: a parked connector's free check is asked for again and again.
async fn upkeep(world: Arc<World>) {
    loop {
        sleep(Duration::from_secs(5)).await;
        for row in world.store.connectors().await.unwrap_or_default() {
            if matches!(row.state, ConnectorState::Parked { .. }) {
                let _ = world.store.enqueue(Chore::Check { connector: row.name }, Duration::ZERO).await;
            }
        }
    }
}
