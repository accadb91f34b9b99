import { once } from 'node:events';
import { join } from 'node:path';
import { createConnection } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../src/http2/errors.ts';
import { PREFACE, SETTINGS_ACK, headers, request, rst, settings } from '../support/http2/wire.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

const daemon = new TestDaemon();

const HANDLED = '/runtime.v1.RuntimeService/UpdateContainerResources';
const AMENDED = '/runtime.v1.RuntimeService/ContainerStatus';

/** Returns the fields of a request without those of these names. */
const without = (path: string, name: string, ...extra: { name: string; value: string }[]) => [
  ...request(path).filter((field) => field.name !== name),
  ...extra,
];
const gzip = { name: 'grpc-encoding', value: 'gzip' };

/** Sends all calls, each with RST_STREAM, in one write. Resolves when the peer closed or had time to read them. */
async function sendAndReset(
  path: string,
  calls: readonly (readonly { name: string; value: string }[])[],
): Promise<void> {
  const socket = createConnection(path);
  await once(socket, 'connect');
  socket.on('error', () => undefined).resume();
  const codes = [ErrorCode.CANCEL, ErrorCode.INTERNAL_ERROR, ErrorCode.NO_ERROR];
  const frames = calls.map((fields, index) =>
    Buffer.concat([headers(2 * index + 1, fields), rst(2 * index + 1, codes[index % codes.length] ?? 0)]),
  );
  socket.write(Buffer.concat([PREFACE, settings(), SETTINGS_ACK, ...frames]));
  await Promise.race([once(socket, 'close'), delay(300)]);
  socket.destroy();
}

describe('H1: calls that are reset in the same write', () => {
  test.each([
    ['a handled call without content type', without(HANDLED, 'content-type')],
    [
      'a handled call of another content type',
      without(HANDLED, 'content-type', { name: 'content-type', value: 'text/html' }),
    ],
    ['a compressed amended call without content type', without(AMENDED, 'content-type', gzip)],
    ['a handled call with an invalid timeout', request(HANDLED, [{ name: 'grpc-timeout', value: 'soon' }])],
    ['a handled call of an unknown encoding', request(HANDLED, [{ name: 'grpc-encoding', value: 'none' }])],
    ['a handled call', request(HANDLED)],
  ])('H1: the process survives resets in the same write on the CRI socket: %s', async (_, fields) => {
    await daemon.startBackend();
    const program = daemon.start();
    await program.logged('serving');
    await sendAndReset(daemon.listen, [fields, fields, fields]);
    expect(await daemon.connect().call('/s/Echo', 'alive')).toBe('alive');
    expect(program.log.filter(({ level }) => level === 'error')).toEqual([]);
    expect(program.process.exitCode).toBeNull();
  });

  test.each([
    ['a call without content type', without('/criresize.v1alpha1.ResizeService/ListPods', 'content-type')],
    ['a call of an unknown method', request('/criresize.v1alpha1.ResizeService/None')],
    ['a call with an invalid timeout', request('/x/y', [{ name: 'grpc-timeout', value: 'soon' }])],
  ])('H1: the process survives resets in the same write on the resize API socket: %s', async (_, fields) => {
    await daemon.startBackend();
    const api = join(daemon.folder, 'resize.sock');
    const program = daemon.start('--resize-listen', `unix://${api}`);
    await program.logged('serving');
    // The API is served last, and its server is loaded with the first call.
    const check = (): Promise<number> => daemon.connect(api).code('/grpc.health.v1.Health/Check');
    await vi.waitFor(async () => expect(await check()).toBe(0), LONG_WAIT);
    await sendAndReset(api, [fields, fields, fields]);
    expect(await check()).toBe(0);
    expect(program.log.filter(({ level }) => level === 'error')).toEqual([]);
    expect(program.process.exitCode).toBeNull();
  });
});

test('a handled call without content type gets the status of the backend', async () => {
  await daemon.startBackend();
  const program = daemon.start();
  await program.logged('serving');
  const { connect } = await import('node:http2');
  const statusOf = async (path: string): Promise<unknown> => {
    const session = connect('http://localhost', { createConnection: () => createConnection(path) });
    const stream = session.request({ ':method': 'POST', ':path': HANDLED });
    stream.end();
    const [answer] = (await once(stream, 'response')) as [Record<string, unknown>];
    session.destroy();
    return answer[':status'];
  };
  expect(await statusOf(daemon.listen)).toBe(await statusOf(daemon.backendPath));
});
