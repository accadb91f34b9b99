import { InterceptingCall, type Interceptor, status } from '@grpc/grpc-js';

/**
 * Ends a unary call with INTERNAL, as grpc-go does, if the backend answers with more than one message, or ends the call with OK and
 * without a message. grpc-js reads one message only: a second one stays unread, and the call never ends before its deadline. A call
 * without a message would end with UNIMPLEMENTED, as if the backend had no such method.
 */
export const singleResponse: Interceptor = (options, nextCall) => {
  let messages = 0;
  const call = new InterceptingCall(nextCall(options), {
    start: (metadata, _listener, next) =>
      next(metadata, {
        onReceiveMessage(message: Buffer | null, nextMessage) {
          if (message !== null) messages += 1;
          nextMessage(message);
          // grpc-js cancels the call at the second message.
          if (messages === 1) call.startRead();
        },
        onReceiveStatus(ended, nextStatus) {
          const isWrong = messages > 1 || (messages === 0 && ended.code === status.OK);
          const details = `the backend answered a unary call with ${messages === 0 ? 'no message' : 'more than one message'}`;
          nextStatus(isWrong ? { ...ended, code: status.INTERNAL, details } : ended);
        },
      }),
  });
  return call;
};
