import { join } from 'node:path';
import { type PackagedPart, keep, obtainPackaged, of } from '../support/node/packaged.ts';
import { cacheRoot } from '../../tools/download/places.ts';
import type { Progress } from '../../tools/download/progress.ts';

/** Of Debian's prometheus the program that checks rules and tries them. It links to the C library alone. */
const promtoolPart: PackagedPart = {
  name: 'promtool',
  packages: [...of('bookworm', 'prometheus')],
  revision: 1,
  arrange: (unpacked, folder) => keep(unpacked, ['usr/bin/promtool'], join(folder, 'bin')),
};

/** The program's path; from the cache of the test node's parts, made the first time. */
export async function preparePromtool(progress: Progress): Promise<string> {
  const [{ folder }] = await obtainPackaged(cacheRoot(), [promtoolPart], progress);
  return join(folder, 'bin/promtool');
}
