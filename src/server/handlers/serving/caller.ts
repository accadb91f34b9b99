import type { HandlerCall } from '../../../grpc/index.ts';
import { type CallerOf, criRequester } from '../../../resize/index.ts';

/** Returns the deadline of a call, and who makes it. */
export const callerOf = ({ deadline, client }: HandlerCall): Required<CallerOf> => ({
  deadline,
  requester: criRequester(client),
});
