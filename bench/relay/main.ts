import { createConnection, createServer, type Socket } from 'node:net';

/**
 * Copies bytes between two unix sockets without parsing them. No Node program between client and runtime can be faster.
 * Arguments: the socket to listen on, and the socket of the runtime.
 */
const [, , listen = '', target = ''] = process.argv;

function copy(from: Socket, to: Socket): void {
  from.on('data', (chunk: Buffer) => {
    if (!to.write(chunk)) from.pause();
  });
  to.on('drain', () => from.resume());
  from.on('error', () => to.destroy());
  from.on('close', () => to.destroy());
}

createServer((client) => {
  const backend = createConnection(target);
  copy(client, backend);
  copy(backend, client);
}).listen(listen);
// The pipe of the process that started this one. The relay ends with it.
process.stdin.resume().on('end', () => process.exit(0));
