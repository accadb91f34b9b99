import type { Exchange } from '../../../src/server/proxy/interception.ts';
import type { TestProxy, TestProxyOptions } from './wire.ts';
import { data, headers, message, openProxy, request, settled } from './wire.ts';

export const PATH = '/amend/ContainerStatus';
export const APPENDED = Buffer.from('appended');

/** Returns a proxy that has forwarded the request of a call to amend. Amendments wait for `answer` or `fail`. */
export function proxyWithCall(
  options: TestProxyOptions = {},
  ...clientSettings: [number, number][]
): TestProxy & {
  exchanges: Exchange[];
  answer: (appended?: Uint8Array) => Promise<void>;
  fail: (error: Error) => Promise<void>;
} {
  const exchanges: Exchange[] = [];
  const waiting: PromiseWithResolvers<Uint8Array | undefined>[] = [];
  const proxy = openProxy(
    {
      ...options,
      amend: (exchange) => {
        exchanges.push(exchange);
        const answer = withResolvers<Uint8Array | undefined>();
        waiting.push(answer);
        return answer.promise.then((appended) => appended && Buffer.concat([exchange.response, appended]));
      },
    },
    ...clientSettings,
  );
  proxy.client.send(headers(1, request(PATH)), data(1, message(Buffer.from('the request')), true));
  proxy.backend.take();
  return Object.assign(proxy, {
    exchanges,
    answer: (appended?: Uint8Array) => {
      waiting.shift()!.resolve(appended);
      return settled();
    },
    fail: (error: Error) => {
      waiting.shift()!.reject(error);
      return settled();
    },
  });
}

interface PromiseWithResolvers<T> {
  promise: Promise<T>;
  resolve: (value: T) => void;
  reject: (error: Error) => void;
}

function withResolvers<T>(): PromiseWithResolvers<T> {
  let resolve!: (value: T) => void;
  let reject!: (error: Error) => void;
  const promise = new Promise<T>((good, bad) => {
    resolve = good;
    reject = bad;
  });
  return { promise, resolve, reject };
}

export const RESPONSE_TEXT = Buffer.from('the response');
/** The response message. */
export const whole = message(RESPONSE_TEXT);
/** The response message with {@link APPENDED}. */
export const amended = message(Buffer.concat([RESPONSE_TEXT, APPENDED]));
