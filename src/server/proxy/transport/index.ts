/** Byte streams of a connection's sides: sockets and in-process pairs, write coalescing, backpressure, buffer reuse. */
export { balance } from './balance.ts';
export { BufferPool } from './buffer-pool.ts';
export type { PoolBlock } from './buffer-pool.ts';
export { Outbox } from './outbox.ts';
export { localPair } from './local-pair.ts';
export { PairTransport } from './pair-transport.ts';
export { ReusedReads, SocketTransport } from './transport.ts';
export type { Transport, TransportEvents } from './transport.ts';
