import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData } from '@grpc/grpc-js';
import { encode } from '../../../src/runtime/codec.ts';
import { runtimePath } from '../../../src/runtime/backend.ts';

const identity = (bytes: Buffer): Buffer => bytes;

/** Serves Version and Status of a runtime on a socket. Returns what stops it. */
export async function answeringRuntime(socket: string): Promise<() => void> {
  const server = new Server();
  const version = {
    version: '0.1.0',
    runtime_name: 'containerd',
    runtime_version: 'v2.1.0',
    runtime_api_version: 'v1',
  };
  const answers = [
    ['Version', encode('VersionResponse', version)],
    ['Status', encode('StatusResponse', {})],
  ] as const;
  for (const [method, answer] of answers)
    server.register(
      runtimePath(method),
      (_call: ServerUnaryCall<Buffer, Buffer>, done: sendUnaryData<Buffer>) => done(null, answer),
      identity,
      identity,
      'unary',
    );
  await new Promise<void>((resolve, reject) =>
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
      error === null ? resolve() : reject(error),
    ),
  );
  return () => server.forceShutdown();
}
