import { basename } from 'node:path';
import { readShipped } from './core/index.ts';

/**
 * Entry point of the single executable. Runs resizectl if it is called by that name or by that of kubectl's plugin, and
 * if the first argument is `resizectl`: `resizectl get pods` and `cri-resize-shim resizectl get pods` are the same.
 * Loads only the selected program.
 */
const [, name = '', word] = process.argv;
if (basename(name) === 'resizectl' || basename(name) === 'kubectl-resizectl') void import('./resizectl/main.ts');
else if (word === 'resizectl') {
  process.argv.splice(1, 1);
  void import('./resizectl/main.ts');
} else if (word === 'licenses') {
  for (const file of ['LICENSE', 'node/LICENSE']) process.stdout.write(readShipped(file));
} else void import('./main.ts');
