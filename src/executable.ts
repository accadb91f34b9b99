import { basename } from 'node:path';
import { readShipped } from './core/shipped/index.ts';

/**
 * The single executable: both programs, by the name that it is called by, or by its first word: `resizectl get pods` and
 * `cri-resize-shim resizectl get pods` are one. Only what is asked for is run.
 */
const [, name = '', word] = process.argv;
if (basename(name) === 'resizectl') void import('./resizectl/main.ts');
else if (word === 'resizectl') {
  process.argv.splice(1, 1);
  void import('./resizectl/main.ts');
} else if (word === 'licenses') {
  for (const file of ['LICENSE', 'node/LICENSE']) process.stdout.write(readShipped(file));
} else void import('./main.ts');
