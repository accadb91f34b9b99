import { join } from 'node:path';
import { packageRoot } from '../../../tools/download/places.ts';

/** The folder with the scripts that run inside the node. */
export function scriptsFolder(): string {
  return join(packageRoot(), 'test/support/node');
}
