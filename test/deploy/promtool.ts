import { join } from 'node:path';
import { type PackagedPart, keep, obtainPackaged, of } from '../support/node/parts/packaged.ts';
import { cacheRoot } from '../../tools/download/places.ts';
import type { Progress } from '../../tools/download/progress.ts';

/** The program of Debian's prometheus that checks and tests rules. It links only to the C library. */
const promtoolPart: PackagedPart = {
  name: 'promtool',
  packages: [...of('bookworm', 'prometheus')],
  revision: 1,
  arrange: (unpacked, folder) => keep(unpacked, ['usr/bin/promtool'], join(folder, 'bin')),
};

/** Returns the path of the program, in the cache of the test node's parts. */
export async function preparePromtool(progress: Progress): Promise<string> {
  const [{ folder }] = await obtainPackaged(cacheRoot(), [promtoolPart], progress);
  return join(folder, 'bin/promtool');
}
