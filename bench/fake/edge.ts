import { createServer } from 'node:net';
import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData, status } from '@grpc/grpc-js';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { localPair } from '../../src/server/proxy/pair-transport.ts';
import { BackendTime } from './backend-time.ts';
import type { Answer } from './pods-runtime.ts';

const identity = (content: Buffer): Buffer => content;
const microseconds = (): number => Number(process.hrtime.bigint()) / 1000;

/**
 * Serves these methods of CRI's RuntimeService, and answers Unimplemented to others. Observes the bytes between the
 * socket and the gRPC server: a connection to `<socket>.time` receives the time that calls have spent in this process,
 * in microseconds.
 */
export function serveTimed(socket: string, answers: ReadonlyMap<string, Answer>): void {
  const time = new BackendTime();
  const server = new Server({ 'grpc.enable_channelz': 0, 'grpc.max_send_message_length': 16 * MiB });
  for (const [method, answer] of answers) {
    const serve = ({ request }: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void => {
      time.begin();
      const succeed = (response: Buffer): void => {
        time.answered();
        respond(null, response);
      };
      const fail = (error: unknown): void => {
        time.answered();
        respond({ code: status.NOT_FOUND, details: String(error) });
      };
      try {
        const response = answer(request);
        if (response instanceof Promise) response.then(succeed, fail);
        else succeed(response);
      } catch (error) {
        fail(error);
      }
    };
    server.register(`/runtime.v1.RuntimeService/${method}`, serve, identity, identity, 'unary');
  }
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const listener = createServer({ noDelay: true }, (client) => {
    const [inside, outside] = localPair();
    injector.injectConnection(inside);
    client.on('data', (chunk: Buffer) => {
      time.arrived(microseconds());
      outside.write(chunk);
    });
    outside.on('data', (chunk: Buffer) => {
      client.write(chunk);
      time.left(microseconds());
    });
    client.on('close', () => outside.destroy());
    client.on('error', () => outside.destroy());
  });
  listener.listen(socket);
  createServer((client) => client.end(String(time.total))).listen(`${socket}.time`);
}
