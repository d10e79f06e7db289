//! Several processes of one fleet, each of which can be killed, frozen and started again.

use super::{Server, Setup};
use std::sync::{Arc, Mutex};

/// One process.
pub struct Member {
    /// `scheduler` or `worker`.
    pub role: &'static str,
    /// Its own name, which its log carries.
    pub name: String,
    /// The process as it runs now.
    pub server: Server,
    /// How often it was killed.
    pub kills: u32,
    setup: Setup,
    born: u32,
}

/// Schedulers and workers that share a store.
#[derive(Default)]
pub struct Fleet {
    /// All of them.
    pub members: Vec<Member>,
    schedulers: Schedulers,
}

/// Where the schedulers that run now are reached.
#[derive(Clone, Default)]
pub struct Schedulers(Arc<Mutex<Vec<String>>>);

impl Schedulers {
    /// One of them, by turns.
    pub fn pick(&self, nth: usize) -> String {
        let all = self.0.lock().expect("a lock");
        all[nth % all.len()].clone()
    }
}

impl Fleet {
    /// Starts one more and waits until it is ready.
    pub async fn add(&mut self, setup: &Setup, role: &'static str, name: &str) {
        let server = setup.role(role, name).await;
        let (name, born) = (name.to_owned(), server.pid());
        self.members.push(Member { role, name, server, kills: 0, setup: setup.clone(), born });
        self.note();
    }

    /// `kill -9`, and another in its place, which need not be ready yet.
    pub async fn kill(&mut self, nth: usize) {
        let member = &mut self.members[nth];
        member.server.kill().await;
        member.kills += 1;
        member.server = member.setup.launch(member.role, &member.name).await;
        member.born = member.server.pid();
        self.note();
    }

    /// The member of this name.
    pub fn named(&self, name: &str) -> &Server {
        &self.members.iter().find(|member| member.name == name).expect("a member").server
    }

    fn note(&self) {
        let running = self.members.iter().filter(|member| member.role == "scheduler");
        *self.schedulers.0.lock().expect("a lock") = running.map(|member| member.server.url.clone()).collect();
    }

    /// Where schedulers are reached, kept up to date.
    pub fn schedulers(&self) -> Schedulers {
        self.schedulers.clone()
    }

    /// The first scheduler.
    pub fn scheduler(&self) -> &Server {
        &self.members.iter().find(|member| member.role == "scheduler").expect("a scheduler").server
    }

    /// Members that ended although nobody killed them, with the end of their log.
    pub fn fallen(&mut self) -> Vec<String> {
        let fell = |member: &mut Member| {
            let same = member.server.runs() && member.server.pid() == member.born;
            (!same).then(|| format!("{}: {}", member.name, member.server.log_text()))
        };
        self.members.iter_mut().filter_map(fell).collect()
    }
}
