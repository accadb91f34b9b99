/** Files that ship with the program. */
export { readShipped } from './files.ts';
