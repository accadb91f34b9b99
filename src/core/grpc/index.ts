/** What server and client of gRPC share: status codes, metadata, the client's process, and the framing of messages (gRPC over HTTP/2). */
export type { ClientProcess } from './client-process.ts';
export { Code, grpcCodeName } from './code.ts';
export { MESSAGE_PREFIX_SIZE, messagePrefix, writeMessagePrefix } from './message-prefix.ts';
export { Metadata } from './metadata.ts';
