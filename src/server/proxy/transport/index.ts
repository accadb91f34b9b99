export { balance } from './balance.ts';
export { Slabs } from './buffer-pool.ts';
export type { Slab } from './buffer-pool.ts';
export { Outbox } from './outbox.ts';
export { PairTransport } from './pair-transport.ts';
export { ReusedReads, SocketTransport } from './transport.ts';
export type { Transport, TransportEvents } from './transport.ts';
