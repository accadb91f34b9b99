import type { ServerUnaryCall } from '@grpc/grpc-js';
import { clientOf, deadlineOf } from '../../../grpc/index.ts';
import { type CallerOf, criRequester } from '../../../resize/index.ts';

/** Returns the deadline of a call, and who makes it. */
export const callerOf = (call: ServerUnaryCall<Buffer, Buffer>): Required<CallerOf> => ({
  deadline: deadlineOf(call),
  requester: criRequester(clientOf(call)),
});
