import { Server } from '@grpc/grpc-js';
import type { Counters } from '../../observe/index.ts';
import { MAX_MESSAGE_BYTES } from '../../runtime/index.ts';
import { GRPC_LIMITS, type ServerLimits } from '../limits.ts';
import { guardStreams } from './guarded-streams.ts';
import { keepSessionHandles } from './session-handles.ts';
import { ServerBudget } from '../server-budget.ts';

/** Serializes and deserializes messages that stay bytes. */
export const rawMessage = (bytes: Buffer): Buffer => bytes;

/** A gRPC server of the shim. */
export interface RawServer {
  readonly server: Server;
  /** For {@link serveUnary}. */
  readonly budget: ServerBudget;
}

/**
 * Returns a gRPC server without handlers whose responses are as large as CRI's clients accept. A budget limits the
 * requests of all clients.
 */
export function createRawServer(
  counters: Counters,
  limits: ServerLimits,
  budget = new ServerBudget(limits, (what) => counters.refused(what)),
): RawServer {
  const server = new Server({
    'grpc.max_receive_message_length': limits.requestLimit,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_concurrent_streams': GRPC_LIMITS.streams,
    'grpc.enable_channelz': 0,
  });
  guardStreams(server, budget);
  keepSessionHandles(server);
  return { server, budget };
}
