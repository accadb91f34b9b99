import { basename } from 'node:path';
import { readShipped } from './core/index.ts';

/**
 * Entry point of the single executable. Runs resizectl if it is called by that name or as kubectl's plugin, or if the
 * first argument is `resizectl`: `resizectl get pods` equals `cri-resize-shim resizectl get pods`. Loads only the
 * selected program.
 */
const [, name = '', word] = process.argv;
if (basename(name) === 'resizectl' || basename(name) === 'kubectl-resizectl') void import('./resizectl/main.ts');
else if (word === 'resizectl') {
  process.argv.splice(1, 1);
  void import('./resizectl/main.ts');
} else if (word === 'licenses') {
  for (const file of ['LICENSE', 'node/LICENSE']) process.stdout.write(readShipped(file));
} else void import('./main.ts');
