export { readShipped } from './files.ts';
