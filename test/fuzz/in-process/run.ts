import { Worker } from 'node:worker_threads';
import type { Outcome } from '../target.ts';
import { inProcess } from './targets.ts';
import type { Job, Report } from './worker.ts';

const HANG_SECONDS = 20;
const SAY_MS = 10_000;

/** Plays inputs in a worker thread of this program. Detects an input that does not end. */
export function runInProcess(self: URL, job: Omit<Job, 'progress'>, say: (text: string) => void): Promise<Outcome> {
  const progress = new Int32Array(new SharedArrayBuffer(4));
  const { target, seed } = job;
  const started = Date.now();
  const worker = new Worker(self, { workerData: { ...job, progress } satisfies Job });
  return new Promise((resolve) => {
    let [last, still, said] = [-1, 0, Date.now()];
    const end = (outcome: Outcome): void => {
      clearInterval(timer);
      void worker.terminate().then(() => resolve(outcome));
    };
    const fail = (index: number, message: string): void => {
      const lines = [`${target}: FAILED at input ${index}: ${message}`, ...describe(job.target, seed, index)];
      end({ target, inputs: index - job.from, failure: { index, lines }, summary: '' });
    };
    const timer = setInterval(() => {
      const index = Atomics.load(progress, 0);
      still = index === last ? still + 1 : 0;
      last = index;
      if (still >= HANG_SECONDS) fail(index, `no progress for ${HANG_SECONDS} s`);
    }, 1000);
    worker.on('error', (error: Error) => fail(Atomics.load(progress, 0), String(error.stack)));
    worker.on('message', (report: Report) => {
      const seconds = (Date.now() - started) / 1000;
      if (report.kind === 'finding') fail(report.index, report.message);
      else if (report.kind === 'done') {
        const { inputs, summary, growthMiB } = report;
        const speed = `${inputs} inputs in ${seconds.toFixed(0)} s, ${(inputs / seconds).toFixed(0)} a second`;
        end({
          target,
          inputs,
          summary: `${speed}; ${summary}; ${growthMiB.toFixed(1)} MiB more live memory than at first`,
        });
      } else if (Date.now() - said > SAY_MS) {
        said = Date.now();
        say(`${target}: ${report.inputs} inputs in ${seconds.toFixed(0)} s; ${report.heapMiB.toFixed(1)} MiB live`);
      }
    });
  });
}

function describe(name: Job['target'], seed: number, index: number): readonly string[] {
  const target = inProcess[name].open();
  try {
    return target.describe(seed, index);
  } finally {
    target.close();
  }
}
