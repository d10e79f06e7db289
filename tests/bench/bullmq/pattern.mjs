// The poll pattern on BullMQ: N jobs, each a start, five polls and a finish, all added before the clock starts; one worker.
//
// A poll is BullMQ's documented way to look again later: moveToDelayed and DelayedError, which cost a job no attempt. The
// step is told from attemptsStarted, which BullMQ counts by itself; the job's data is written once, after the start, as
// anybody must who is given an id by a vendor. The finish is the return of the last poll. Jobs are added with a priority
// that the start takes away, so that a due poll overtakes a fresh start; `--plain` leaves that out.
//
// node pattern.mjs PORT JOBS CONCURRENCY APART_MS POLLS [--plain]: one JSON line.
import { readFileSync } from 'node:fs';
import { DelayedError, Queue, Worker } from 'bullmq';

const [port, jobs, concurrency, apart, polls] = process.argv.slice(2, 7).map(Number);
const plain = process.argv.includes('--plain');
const connection = { host: '127.0.0.1', port };
const queue = new Queue('bench', { connection });
await queue.waitUntilReady();

const words = 'a brass telescope on a windowsill, morning light';
const data = {
  connector: 'bench', task: 'image', instructions: words, media: { width: 1536, height: 864, format: 'png' },
  prepared: { path: '/v1/flux-2-pro', body: { prompt: words, width: 1536, height: 864, output_format: 'png' } },
};
const opts = plain ? {} : { priority: 10 };
const submitting = performance.now();
for (let first = 0; first < jobs; first += 1000) {
  const count = Math.min(1000, jobs - first);
  await queue.addBulk(Array.from({ length: count }, () => ({ name: 'job', data, opts })));
}
const submitted = (performance.now() - submitting) / 1000;

const due = new Map();
const late = [];
const processor = async (job, token) => {
  if (job.attemptsStarted === 1) {
    await Promise.all([
      job.updateData({ ...job.data, vendorJobId: `vendor-${job.id}` }),
      plain ? undefined : job.changePriority({ priority: 0 }),
    ]);
  } else {
    late.push(Date.now() - due.get(job.id));
    if (job.attemptsStarted > polls) return;
  }
  const next = Date.now() + apart;
  due.set(job.id, next);
  await job.moveToDelayed(next, token);
  throw new DelayedError();
};

const cpu = process.cpuUsage();
const begun = performance.now();
const worker = new Worker('bench', processor, { connection, concurrency });
await new Promise((resolve, reject) => {
  let done = 0;
  worker.on('completed', () => { if (++done === jobs) resolve(); });
  worker.on('failed', (_, error) => reject(error));
  worker.on('error', reject);
});
const seconds = (performance.now() - begun) / 1000;
const { user, system } = process.cpuUsage(cpu);
if (late.length !== jobs * polls) throw new Error(`${late.length} polls were made of ${jobs} jobs`);
late.sort((a, b) => a - b);
const at = (perMille) => late[Math.max(1, Math.ceil(late.length * perMille / 1000)) - 1];
const version = JSON.parse(readFileSync(new URL('./node_modules/bullmq/package.json', import.meta.url))).version;
const two = (figure) => Math.round(figure * 100) / 100;
console.log(JSON.stringify({
  store: 'bullmq', version, node: process.version, jobs, steps: jobs * (polls + 2), concurrency, overtakes: !plain,
  seconds: two(seconds), steps_per_s: two(jobs * (polls + 2) / seconds),
  late_p50_ms: at(500), late_p99_ms: at(990), late_p999_ms: at(999), late_max_ms: late.at(-1),
  cpu_s: two((user + system) / 1e6), cpu_us_per_step: two((user + system) / (jobs * (polls + 2))),
  rss_mib: two(process.memoryUsage().rss / 2 ** 20), submits_per_s: two(jobs / submitted),
}));
await worker.close();
await queue.close();
