import { playInside } from './inside.ts';

const [, , file = '', rounds, speed] = process.argv;
await playInside(file, Number(rounds), Number(speed), process.env['NODE_OUT'] ?? '.');
// The exit stops everything that still runs (children.ts).
process.exit(0);
