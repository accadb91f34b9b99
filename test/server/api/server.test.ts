import { once } from 'node:events';
import { lstatSync } from 'node:fs';
import type { ClientHttp2Session, ClientHttp2Stream, Settings } from 'node:http2';
import { connect } from 'node:http2';
import { createConnection } from 'node:net';
import { compressionAlgorithms, type ServiceError, status } from '@grpc/grpc-js';
import { describe, expect, test, vi } from 'vitest';
import { RunningCalls } from '../../../src/server/proxy/shared-budget.ts';
import { crowdOf } from '../../../src/server/unary/connection-room.ts';
import { API_LIMITS } from '../../../src/server/unary/server-budget.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { ResizeClient, refusal, refusalOf } from '../../support/resize-api/client.ts';
import { byUid, TestApi, toMemory } from '../../support/resize-api/resize-api.ts';
import { view } from '../../support/resize-api/view.ts';

const shim = new TestApi(view);

describe('the socket of the resize API', () => {
  test('the resize API continues to serve after clients that disconnect immediately', async () => {
    for (let index = 0; index < 8; index += 1) {
      const socket = createConnection(shim.path);
      await once(socket, 'connect');
      if (index % 2 === 0) socket.write('PRI');
      socket.destroy();
    }
    expect((await shim.client.call('ListPods', {}))['pods']).toHaveLength(1);
  });

  test('the socket has the configured mode, and another shim cannot replace it while the shim runs', async () => {
    expect((lstatSync(shim.path).mode & 0o777).toString(8)).toBe('600');
    await expect(shim.open(0o600)).rejects.toThrow(/already listens there; stop it or use another path$/);
    expect((await shim.client.call('ListPods', {}))['pods']).toHaveLength(1);
    await shim.api.close(0);
    shim.api = await shim.open(0o660);
    expect((lstatSync(shim.path).mode & 0o777).toString(8)).toBe('660');
  });
});

describe('calls of the API', () => {
  const shim = new TestApi(view);
  const callOf = (method: string): Record<string, string> => ({
    ...{ ':method': 'POST', 'content-type': 'application/grpc', te: 'trailers' },
    ':path': `/criresize.v1alpha1.ResizeService/${method}`,
  });

  test('a method that the API does not have is answered before the client has ended its request', async () => {
    const session = connect('http://localhost', { createConnection: () => createConnection(shim.path) });
    const stream = session.request({
      ...{ ':method': 'POST', 'content-type': 'application/grpc', te: 'trailers' },
      ':path': '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
    });
    stream.write(Buffer.alloc(5));
    const [headers] = (await once(stream, 'response')) as [Record<string, string>];
    expect(headers['grpc-status']).toBe(String(status.UNIMPLEMENTED));
    session.destroy();
  });

  test('a compressed call gets the same answer as a plain one', async () => {
    const compressing = new ResizeClient(shim.path, compressionAlgorithms.gzip);
    const plain = await shim.client.call('GetPod', { pod: byUid });
    expect(await compressing.call('GetPod', { pod: byUid })).toEqual(plain);
    compressing.close();
  });

  test('a connection of the API acknowledges SETTINGS and PING as any HTTP/2 server', async () => {
    const session = connect('http://localhost', { createConnection: () => createConnection(shim.path) });
    const [settings] = (await once(session, 'remoteSettings')) as [Settings];
    expect(settings.maxConcurrentStreams).toBe(1024);
    for (const initialWindowSize of [1, 1_000_000]) {
      await new Promise<void>((resolve) => session.settings({ initialWindowSize }, () => resolve()));
      await new Promise<void>((resolve) => session.ping(() => resolve()));
    }
    const closed = once(session, 'close');
    session.close();
    await closed;
  });

  test('a request above 8 MiB is rejected, and the connection continues', async () => {
    await expect(shim.client.raw('GetPod', Buffer.alloc(API_LIMITS.requestLimit + 1))).rejects.toMatchObject({
      code: status.RESOURCE_EXHAUSTED,
    });
    expect(await refusal(shim.client.raw('GetPod', Buffer.alloc(API_LIMITS.requestLimit)))).toMatchObject({
      code: status.INVALID_ARGUMENT,
    });
  });

  test('a call above the limit of running calls is rejected with the reason', async () => {
    const others = new ResizeClient(shim.path);
    const read = Promise.withResolvers<undefined>();
    let waiting = 0;
    shim.onDescribe = () => {
      waiting += 1;
      return read.promise;
    };
    const running = Array.from({ length: API_LIMITS.runningCalls }, () => others.call('GetPod', { pod: byUid }));
    await vi.waitFor(() => expect(waiting).toBe(API_LIMITS.runningCalls), LONG_WAIT);
    expect(await refusal(shim.client.call('GetPod', { pod: byUid }))).toMatchObject({
      code: status.RESOURCE_EXHAUSTED,
      reason: 'OVERLOADED',
    });
    read.resolve(undefined);
    expect(await Promise.all(running)).toHaveLength(API_LIMITS.runningCalls);
    expect(await shim.client.call('GetPod', { pod: byUid })).toHaveProperty('pod');
    others.close();
  });

  test('a malformed call that began before a watch on its connection is answered', async () => {
    const session = connect('http://localhost', { createConnection: () => createConnection(shim.path) });
    const early = session.request(callOf('GetPod'));
    await new Promise((resolve) => session.ping(resolve));
    const watch = session.request(callOf('WatchResizes'));
    watch.end(Buffer.alloc(5));
    await once(watch, 'response');
    const answered = once(early, 'response') as Promise<[Record<string, string>]>;
    early.end(Buffer.alloc(3));
    const [headers] = await answered;
    expect(headers['grpc-status']).toBe(String(status.INTERNAL));
    session.destroy();
  });

  test('compressed watches leave room for other compressed calls', async () => {
    const clients = Array.from({ length: 3 }, () => new ResizeClient(shim.path, compressionAlgorithms.gzip));
    const limits = vi.spyOn(RunningCalls.prototype, 'take');
    for (const client of clients) {
      const watch = client.watch({}).on('error', () => undefined);
      await once(watch.resume(), 'metadata');
    }
    expect(await clients[0]!.call('GetPod', { pod: byUid })).toHaveProperty('pod');
    expect(limits.mock.calls.map(([, compressed]) => compressed)).toEqual([false, false, false, true]);
    limits.mockRestore();
    for (const client of clients) client.close();
  });

  test('a watch that its client does not read does not delay the end', async () => {
    const session = connect('http://localhost', {
      createConnection: () => createConnection(shim.path),
      settings: { initialWindowSize: 10 },
    });
    const watch = session.request(callOf('WatchResizes'));
    watch.end(Buffer.alloc(5));
    await once(watch, 'response');
    const answer = shim.client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') });
    (await shim.core.next()).succeed();
    await answer;
    await new Promise((resolve) => session.ping(resolve));
    await shim.resizes.close();
    await shim.api.close(10_000_000);
    session.destroy();
  });

  test('at the end, a running call is answered and then its connection ends', async () => {
    const answer = shim.client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') });
    const attempt = await shim.core.next();
    const closed = shim.api.close(60_000);
    attempt.succeed();
    expect((await answer)['resize']).toMatchObject({ state: 'COMPLETED' });
    await closed;
    shim.api = await shim.open(0o600);
  });
});

describe('connections of the API', () => {
  const shim = new TestApi(view);
  const HEADERS = { ':method': 'POST', 'content-type': 'application/grpc', te: 'trailers' };
  const RESIZE = { ...HEADERS, ':path': '/criresize.v1alpha1.ResizeService/WatchResizes' };

  /** Connections of one process. With `busy`, each has a call that does not end, because its request does not. */
  class Connections {
    readonly sessions: ClientHttp2Session[] = [];
    readonly calls: ClientHttp2Stream[] = [];
    ended = 0;

    async open(count: number, busy: boolean): Promise<void> {
      for (let at = 0; at < count; at += 1) {
        const session = connect('http://localhost', { createConnection: () => createConnection(shim.path) });
        session.on('error', () => undefined).once('close', () => (this.ended += 1));
        this.sessions.push(session);
        await Promise.race([once(session, 'remoteSettings'), once(session, 'close')]);
        if (busy && !session.destroyed) this.calls.push(session.request(RESIZE).on('error', () => undefined));
        await this.answered(this.sessions.length - 1);
      }
    }

    /** Waits until the server has handled what a connection has sent: it answers a PING after that. */
    async answered(at: number): Promise<void> {
      const session = this.sessions[at]!;
      if (!session.destroyed) await new Promise((resolve) => session.ping(resolve));
    }

    close(): void {
      for (const session of this.sessions) session.destroy();
    }
  }

  /** Lines of the log about connections that were refused or ended. */
  const reported = (): number => shim.lines.filter(({ msg }) => msg === 'too many client connections').length;

  test('a connection above the limit ends the least recently used one without running calls', async () => {
    const others = new Connections();
    await others.open(1, true);
    await others.open(1, false);
    await others.open(API_LIMITS.connections - 2, true);
    expect([others.ended, reported()]).toEqual([0, 0]);
    expect((await shim.client.call('ListPods', {}))['pods']).toHaveLength(1);
    await vi.waitFor(() => expect(others.sessions.map(({ destroyed }) => destroyed).indexOf(true)).toBe(1), LONG_WAIT);
    expect([others.ended, reported()]).toEqual([1, 1]);
    others.close();
  });

  test('a connection that has just opened, and has had no call yet, is not the one that ends', async () => {
    const others = new Connections();
    await others.open(API_LIMITS.connections, true);
    for (const [at, stream] of others.calls.slice(0, 3).entries()) {
      stream.close();
      await once(stream, 'close');
      await others.answered(at);
    }
    const opened = new Connections();
    await opened.open(3, false);
    await vi.waitFor(() => expect(others.ended).toBe(3), LONG_WAIT);
    expect(others.sessions.slice(0, 3).map(({ destroyed }) => destroyed)).toEqual([true, true, true]);
    expect(opened.ended).toBe(0);
    others.close();
    opened.close();
  });

  test('a connection above the limit is refused if all other connections have running calls', async () => {
    const others = new Connections();
    await others.open(API_LIMITS.connections, true);
    // ENHANCE_YOUR_CALM ends a running call with RESOURCE_EXHAUSTED. Otherwise the client reconnects until its
    // deadline.
    await expect(shim.client.call('ListPods', {}, Date.now() + 5000)).rejects.toThrow(
      /RESOURCE_EXHAUSTED|UNAVAILABLE|DEADLINE_EXCEEDED/,
    );
    expect(others.ended).toBe(0);
    expect(shim.lines).toContainEqual(expect.objectContaining({ level: 'warn', msg: 'too many client connections' }));
    // There is room again when one of the connections has ended.
    others.sessions[7]?.destroy();
    const client = new ResizeClient(shim.path);
    await vi.waitFor(async () => expect((await client.call('ListPods', {}))['pods']).toHaveLength(1), LONG_WAIT);
    client.close();
    others.close();
  });

  test('a process that watches on many connections leaves watches for other processes', async () => {
    const clients = Array.from({ length: 3 }, () => new ResizeClient(shim.path));
    const watched = async (client: ResizeClient): Promise<string> => {
      const watch = client.watch({}).resume();
      const error = once(watch, 'error').then(([failure]) => refusalOf(failure as ServiceError).reason);
      return Promise.race([once(watch, 'metadata').then(() => 'watches'), error]);
    };
    shim.peerOf = () => 7;
    const [first, second, third] = clients;
    expect([await watched(first!), await watched(second!), await watched(third!)]).toEqual([
      'watches',
      'watches',
      'TOO_MANY_WATCHERS',
    ]);
    shim.peerOf = () => 8;
    expect(await watched(shim.client)).toBe('watches');
    for (const client of clients) client.close();
  });

  test('a process that leaks connections with running calls does not block other processes', async () => {
    const leaking = new Connections();
    shim.peerOf = () => 7;
    await leaking.open(API_LIMITS.connections, true);
    shim.peerOf = () => 8;
    const answer = shim.client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') });
    (await shim.core.next()).succeed();
    expect((await answer)['resize']).toMatchObject({ state: 'COMPLETED' });
    await vi.waitFor(() => expect(leaking.sessions.map(({ destroyed }) => destroyed).indexOf(true)).toBe(0), LONG_WAIT);
    shim.peerOf = () => 7;
    await leaking.open(1, false);
    await vi.waitFor(() => expect(leaking.ended).toBe(2), LONG_WAIT);
    expect(leaking.sessions.at(-1)?.destroyed).toBe(true);
    expect((await shim.client.call('ListPods', {}))['pods']).toHaveLength(1);
    expect(shim.lines).toContainEqual(
      expect.objectContaining({ msg: 'too many client connections', pid: 7, held: API_LIMITS.connections }),
    );
    expect(crowdOf(API_LIMITS.connections)).toBe(32);
    leaking.close();
  });
});
