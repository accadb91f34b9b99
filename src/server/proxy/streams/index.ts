/** The streams of one connection: their routes, how they begin, and the ways in which they end. */
export { RunningCall } from './running-call.ts';
export { AmendStream, LocalStream, MessageAmendStream, PassStream, serverEnded } from './stream.ts';
export type { LocalPeer, Stream } from './stream.ts';
export { Streams } from './streams.ts';
export type { StreamsPorts } from './streams.ts';
