import fs, { writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { recordBackendCalls } from './backend-calls.ts';
import { serveLoopReports } from './loop.ts';
import type { Notes, Span } from './notes.ts';

/**
 * Loaded into a measured shim before its own code (`--import`). Variables of the environment say what it does:
 * - CRI_BENCH_NOTES: records when the shim was in an fsync, and when it waited for an answer of the backend at
 *   CRI_BENCH_BACKEND. Writes this to the file at the end of the process.
 * - CRI_BENCH_LOOP: serves reports about the event loop and the heap at this socket.
 * - CRI_BENCH_CGROUP_ROOT: this folder, a tree of files, counts as cgroup2. On any other file system, the shim also
 *   asks before each read of an open file whether it has been removed.
 */
const { CRI_BENCH_NOTES: file, CRI_BENCH_BACKEND: backend = '', CRI_BENCH_LOOP: loop } = process.env;
const { CRI_BENCH_CGROUP_ROOT: cgroupRoot } = process.env;

/** CGROUP2_SUPER_MAGIC of linux/magic.h. */
const CGROUP2 = 0x63677270;

const now = (): number => Number(process.hrtime.bigint()) / 1000;

async function recordFsyncs(spans: Span[]): Promise<void> {
  const any = await open('/dev/null');
  const handles = Object.getPrototypeOf(any) as { sync: () => Promise<void> };
  await any.close();
  const { sync } = handles;
  handles.sync = async function (this: unknown): Promise<void> {
    const begin = now();
    try {
      await sync.call(this);
    } finally {
      spans.push([begin, now()]);
    }
  };
}

function countAsCgroup2(folder: string): void {
  const { statfsSync } = fs;
  const asCgroup2 = (...args: Parameters<typeof statfsSync>): ReturnType<typeof statfsSync> => {
    const stats = statfsSync(...args);
    if (args[0] === folder) stats.type = CGROUP2;
    return stats;
  };
  fs.statfsSync = asCgroup2 as typeof statfsSync;
  syncBuiltinESMExports();
}

if (cgroupRoot !== undefined) countAsCgroup2(cgroupRoot);
if (file !== undefined) {
  const notes = { fsyncs: [] as Span[], backend: [] as Span[] };
  await recordFsyncs(notes.fsyncs);
  recordBackendCalls(backend, now, notes.backend);
  process.on('exit', () => writeFileSync(file, JSON.stringify(notes satisfies Notes)));
}
if (loop !== undefined) serveLoopReports(loop);
