import { writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';

/**
 * Loaded into a measured shim before its own code (`--import`): notes when each fsync began and how long it took, in
 * microseconds of the machine's clock, and leaves that in the file named by CRI_BENCH_FSYNC when the process ends.
 */
const file = process.env['CRI_BENCH_FSYNC'] ?? '';
const noted: [begin: number, took: number][] = [];
const now = (): number => Number(process.hrtime.bigint()) / 1000;

const any = await open('/dev/null');
const handles = Object.getPrototypeOf(any) as { sync: () => Promise<void> };
await any.close();
const { sync } = handles;
handles.sync = async function (this: unknown): Promise<void> {
  const begin = now();
  try {
    await sync.call(this);
  } finally {
    noted.push([begin, now() - begin]);
  }
};
process.on('exit', () => writeFileSync(file, JSON.stringify(noted)));
