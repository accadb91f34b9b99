import { main } from './first-status.ts';

await main(Number(process.argv[2]), process.env['NODE_OUT'] ?? '.');
process.exit(0);
