import { once } from 'node:events';
import { type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { type AddressInfo, createConnection } from 'node:net';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Reason, ShimError } from '../../src/core/errors.ts';
import { Code } from '../../src/core/grpc.ts';
import { createCounters } from '../../src/core/observe/counters.ts';
import { type LogFields, noLog, type ReadinessReport } from '../../src/core/observe/interfaces.ts';
import { MONITORING_LIMITS, type MonitoringLimits } from '../../src/monitoring/limits.ts';
import { createMonitoringServer, type MonitoringServer } from '../../src/monitoring/server.ts';
import type { Overview } from '../../src/sandbox/report/overview.ts';
import { LONG_WAIT } from '../support/long-wait.ts';
import { readMetrics } from '../support/metrics-text.ts';

let readiness: () => Promise<ReadinessReport>;
let overview: (signal?: AbortSignal) => Promise<Overview>;
let counters: ReturnType<typeof createCounters>;
let logged: LogFields[];
let server: MonitoringServer;
let port: number;

let requests: number;

const openConnections = (): Promise<number> =>
  new Promise((resolve) => server.http.getConnections((_, count) => resolve(count)));

beforeEach(async () => {
  readiness = () => Promise.resolve({ ready: true, checks: [{ name: 'backend', ready: true, says: 'connected' }] });
  counters = createCounters();
  overview = () => Promise.resolve({ pods: [], recent: [], history: [] });
  logged = [];
  await restart();
});
afterEach(() => {
  vi.useRealTimers();
  server.close();
});

async function restart(limits: Partial<MonitoringLimits> = {}): Promise<void> {
  server = createMonitoringServer(
    {
      version: '1.2.3',
      counted: counters.families,
      readiness: () => readiness(),
      bypass: () => ({ start: 1000, end: undefined }),
      endpoint: () => 'shim',
      node: () => ({
        pods: 7,
        volumes: { count: 2, size: 3000, used: 100 },
        unfinished: ['Deferred', 'Deferred'],
        foresight: true,
      }),
      connections: () => 3,
      watchResizes: () => () => undefined,
      refused: () => undefined,
      overview: (signal) => overview(signal),
      log: { ...noLog, error: (fields) => void logged.push(fields) },
    },
    { isTcp: true },
    { ...MONITORING_LIMITS, pageMs: 0, ...limits },
  );
  requests = 0;
  server.http.on('request', () => (requests += 1));
  server.http.listen({ host: '127.0.0.1', port: 0 });
  await once(server.http, 'listening');
  ({ port } = server.http.address() as AddressInfo);
}

interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

async function get(path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<HttpAnswer> {
  const sent = request({ host: '127.0.0.1', port, path, method, headers, agent: false });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  let body = '';
  for await (const chunk of response.setEncoding('utf8')) body += chunk as string;
  return { status: response.statusCode ?? 0, headers: response.headers, body };
}

describe('/metrics', () => {
  test('/metrics serves counters and current readings in the Prometheus text format', async () => {
    counters.interceptedCall('/runtime.v1.RuntimeService/UpdateContainerResources', 9, 12, 10);
    counters.passedCall('/runtime.v1.RuntimeService/ListContainers', 'answered');
    counters.resize('Deferred', 'down');
    counters.step('volume', 4);
    const { status, headers, body } = await get('/metrics');
    expect([status, headers['content-type']]).toEqual([200, 'text/plain; version=0.0.4; charset=utf-8']);
    expect(headers['cache-control']).toBe('no-store');
    const scraped = readMetrics(body);
    const samples = (name: string) =>
      scraped.get(`cri_resize_shim_${name}`)?.samples.map(({ labels, value }) => [labels, value]);
    expect(samples('build_info')).toEqual([[{ version: '1.2.3', node_version: process.version }, 1]]);
    expect(samples('ready')).toEqual([[{ check: 'backend' }, 1]]);
    expect(samples('client_connections')).toEqual([[{}, 3]]);
    expect(samples('pods')).toEqual([[{}, 7]]);
    expect([samples('volumes'), samples('volumes_size_bytes'), samples('volumes_used_bytes')]).toEqual(
      [2, 3000, 100].map((value) => [[{}, value]]),
    );
    expect(samples('unfinished_resizes')).toEqual([
      [{ state: 'Deferred' }, 2],
      [{ state: 'InProgress' }, 0],
      [{ state: 'Proposed' }, 0],
    ]);
    expect(samples('resizes_total')).toEqual([[{ state: 'Deferred', direction: 'down' }, 1]]);
    expect(samples('passed_calls_total')).toEqual([
      [{ method: '/runtime.v1.RuntimeService/ListContainers', outcome: 'answered' }, 1],
    ]);
    const calls = { method: '/runtime.v1.RuntimeService/UpdateContainerResources', code: 'FAILED_PRECONDITION' };
    expect(samples('call_duration_seconds')).toContainEqual([calls, 0.012]);
    expect(samples('call_added_seconds')).toContainEqual([{ method: calls.method }, 0.002]);
    expect(samples('step_duration_seconds')).toContainEqual([{ kind: 'volume', le: '0.005' }, 1]);
    expect(samples('step_duration_seconds')).toContainEqual([{ kind: 'volume', le: '0.001' }, 0]);
    const [started] = scraped.get('process_start_time_seconds')?.samples ?? [];
    expect(started?.value).toBeGreaterThan(Date.now() / 1000 - 3600);
  });

  test('/metrics reports the lag of the event loop', async () => {
    const lag = async (): Promise<number> => {
      const family = readMetrics((await get('/metrics')).body).get('cri_resize_shim_event_loop_lag_seconds');
      return family?.samples.find(({ name }) => name.endsWith('_sum'))?.value ?? 0;
    };
    const blocked = async (): Promise<number> => {
      const until = performance.now() + 400;
      while (performance.now() < until);
      return lag();
    };
    // The timer is due at least once while the loop is blocked.
    expect(await blocked()).toBeGreaterThan(0.15);
  });

  test('/metrics answers 500 for an internal error, and logs its type but not its message', async () => {
    readiness = () => Promise.reject(new TypeError('PASSWORD=hunter2'));
    const { status, body } = await get('/metrics');
    expect([status, body]).toEqual([500, 'internal error in cri-resize-shim; see its log\n']);
    expect(logged).toMatchObject([{ path: '/metrics', error: 'TypeError' }]);
    expect(JSON.stringify(logged)).not.toContain('hunter2');
  });
});

describe('the status page', () => {
  test('the status page has a content security policy, and reports a missing backend', async () => {
    const { status, headers, body } = await get('/');
    expect([status, headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
    expect(headers['content-security-policy']).toMatch(/^default-src 'none'; style-src 'sha256-/);
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(body).toContain('none on this node');
    overview = () => Promise.reject(new ShimError(Code.UNAVAILABLE, Reason.BACKEND_UNAVAILABLE, 'it is gone'));
    expect(await get('/')).toMatchObject({ status: 503, body: 'BACKEND_UNAVAILABLE: it is gone\n' });
  });
});

describe('a slow status page', () => {
  const nothing: Overview = { pods: [], recent: [], history: [] };

  /** Requests the page. Resolves when the overview is read. */
  async function reading(): Promise<{ leave: () => void; signal: AbortSignal; finish: () => void }> {
    const asked = Promise.withResolvers<AbortSignal>();
    const { promise, resolve } = Promise.withResolvers<Overview>();
    overview = (signal) => {
      asked.resolve(signal!);
      return promise;
    };
    const sent = request({ host: '127.0.0.1', port, path: '/', agent: false });
    sent.on('error', () => undefined).end();
    return { leave: () => sent.destroy(), signal: await asked.promise, finish: () => resolve(nothing) };
  }

  test('KEP-1287: reading the pods for the status page ends with its client, and starts again for the next client', async () => {
    const { leave, signal } = await reading();
    expect(signal.aborted).toBe(false);
    leave();
    await expect.poll(() => signal.aborted, LONG_WAIT).toBe(true);
    overview = () => Promise.resolve(nothing);
    expect((await get('/')).status).toBe(200);
    expect(logged).toEqual([]);
  });

  test('reading for the status page continues if another client waits for it', async () => {
    const { leave, signal, finish } = await reading();
    const other = get('/');
    await expect.poll(() => requests, LONG_WAIT).toBe(2);
    leave();
    await expect.poll(openConnections, LONG_WAIT).toBe(1);
    expect(signal.aborted).toBe(false);
    finish();
    expect((await other).status).toBe(200);
  });

  test('reading for the status page continues after its connection has timed out, and serves the next request', async () => {
    server.close();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    await restart({ connectionMs: 2000, pageMs: 60_000 });
    const { signal, finish } = await reading();
    vi.advanceTimersByTime(2000);
    await expect.poll(openConnections, LONG_WAIT).toBe(0);
    expect(signal.aborted).toBe(false);
    overview = () => Promise.reject(new Error('read twice'));
    finish();
    expect((await get('/')).status).toBe(200);
  });
});

describe('health checks', () => {
  const failing: ReadinessReport = {
    ready: false,
    checks: [
      { name: 'backend', ready: true, says: 'connected' },
      { name: 'journal', ready: false, says: 'resizes are rejected: EROFS' },
    ],
  };

  test.each(['/healthz', '/livez', '/readyz'])('%s answers ok, and lists its checks with ?verbose', async (path) => {
    expect(await get(path)).toMatchObject({ status: 200, body: 'ok' });
    const lines = (await get(`${path}?verbose`)).body.split('\n');
    expect([lines[0], lines.at(-2)]).toEqual(['[+]ping ok', `${path.slice(1)} check passed`]);
  });

  test('/readyz fails with the reason while resizes are not possible; /livez and /healthz do not', async () => {
    readiness = () => Promise.resolve(failing);
    const body = '[+]ping ok\n[+]backend ok\n[-]journal failed: resizes are rejected: EROFS\nreadyz check failed\n';
    expect(await get('/readyz')).toMatchObject({ status: 500, body });
    expect(await get('/readyz?verbose')).toMatchObject({ status: 500, body });
    expect((await get('/livez')).status).toBe(200);
    expect((await get('/healthz')).status).toBe(200);
  });

  test('/readyz can exclude checks, and lists optional ones that fail', async () => {
    readiness = () => Promise.resolve(failing);
    expect(await get('/readyz?verbose&exclude=journal&exclude=moon')).toMatchObject({
      status: 200,
      body:
        '[+]ping ok\n[+]backend ok\n[+]journal excluded: ok\n' +
        'warn: some health checks cannot be excluded: no matches for "moon"\nreadyz check passed\n',
    });
    const kubernetes = { name: 'kubernetes', ready: false, says: 'ECONNREFUSED', isOptional: true } as const;
    readiness = () => Promise.resolve({ ready: true, checks: [kubernetes] });
    expect(await get('/readyz')).toMatchObject({ status: 200, body: 'ok' });
    expect((await get('/readyz?verbose')).body).toContain('[-]kubernetes failed (optional): ECONNREFUSED');
  });
});

describe('a request', () => {
  test.each([
    'rebound.example.org',
    'rebound.example.org:9467',
    '127.0.0.1.example.org',
    '10.0.0.1',
    'localhost.evil.org',
    '[::2]',
  ])('a request with the Host %s is rejected', async (host) => {
    const { status, body } = await get('/metrics', { host });
    expect(status).toBe(403);
    expect(body).toContain('loopback');
    expect(body).not.toContain('cri_resize_shim');
  });

  test.each(['localhost', 'LOCALHOST:1', '127.0.0.1:9467', '127.8.8.8', '[::1]:9467'])(
    'a request with the Host %s is served',
    async (host) => {
      expect((await get('/metrics', { host })).status).toBe(200);
    },
  );

  test('a request with another method than GET and HEAD is rejected', async () => {
    expect(await get('/metrics', {}, 'POST')).toMatchObject({ status: 405, headers: { allow: 'GET, HEAD' } });
    expect(await get('/metrics', {}, 'HEAD')).toMatchObject({ status: 200, body: '' });
    const { status, body } = await get('/constructor');
    expect([status, body]).toEqual([404, expect.stringContaining('/metrics')]);
  });

  test('closes the connections above the limit of 32, and serves requests afterwards', async () => {
    const silent = Array.from({ length: 40 }, () => createConnection({ port, host: '127.0.0.1' }));
    const ended = await Promise.all(
      silent.map((socket) => Promise.race([once(socket, 'connect'), once(socket, 'close')])),
    );
    expect(ended).toHaveLength(40);
    let open = 40;
    for (const socket of silent) {
      socket.on('error', () => undefined);
      socket.once('close', () => (open -= 1));
    }
    // The server closes the connections above its limit.
    await expect.poll(() => open, LONG_WAIT).toBe(32);
    for (const socket of silent) socket.destroy();
    await expect
      .poll(
        () =>
          get('/livez').then(
            ({ status }) => status,
            () => 0,
          ),
        LONG_WAIT,
      )
      .toBe(200);
  });
});
