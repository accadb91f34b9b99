import { Server } from '@grpc/grpc-js';
import { MAX_MESSAGE_BYTES } from '../runtime/index.ts';

/** Serializes and deserializes messages that stay bytes. */
export const rawMessage = (bytes: Buffer): Buffer => bytes;

/** Returns a gRPC server without handlers that accepts messages as large as CRI's clients do. */
export function createRawServer(): Server {
  return new Server({
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.enable_channelz': 0,
  });
}
