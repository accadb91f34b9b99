import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { MAX_OPEN_FILES } from '../../src/cgroups/open-files.ts';
import { createCounters } from '../../src/core/observe/counters.ts';
import { LOG_LIMITS } from '../../src/core/observe/log.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { FLOOD_LIMIT } from '../../src/http2/flood-meter.ts';
import { DEFAULT_WINDOW } from '../../src/http2/frame.ts';
import { HEADERS_COST } from '../../src/http2/frame-reader.ts';
import { LONGEST_OBJECT } from '../../src/kubernetes/pods/pod-watch.ts';
import { MONITORING_LIMITS } from '../../src/monitoring/limits.ts';
import { ANSWER_MS, MAX_MESSAGE_BYTES } from '../../src/runtime/backend.ts';
import {
  MAX_CALLS,
  MAX_LEAVING,
  MAX_REQUEST_BYTES,
  MAX_RESPONSE_BYTES,
  NEXT_ATTEMPT_MS,
} from '../../src/runtime/channel/channel.ts';
import { HANDSHAKE_MS } from '../../src/runtime/channel/connection.ts';
import { HEADER_LIST_LIMIT } from '../../src/runtime/channel/response.ts';
import { BACKLOG_LIMIT } from '../../src/runtime/channel/server-socket.ts';
import { LONGEST_CHANGE_MS, LONGEST_WAIT_MS } from '../../src/sandbox/journal/availability.ts';
import { defaultBounds } from '../../src/sandbox/queue/resizes.ts';
import { LONGEST_REQUEST } from '../../src/server/api/requests.ts';
import { CONNECTION_LIMIT } from '../../src/server/client-connections.ts';
import { OVERFULL, OVERFULL_IF_ALL_FULL } from '../../src/server/proxy/backend-flow.ts';
import { CALL_COST, STARTS_COST } from '../../src/server/proxy/call-starts.ts';
import { HEADERS_LIMIT } from '../../src/server/proxy/client-side.ts';
import { TURN_COST } from '../../src/server/proxy/dispatch.ts';
import { CONNECTION_WINDOW } from '../../src/server/proxy/local-side.ts';
import { LIMITS, SHARED_LIMITS } from '../../src/server/proxy/serve.ts';
import { TURN_MS } from '../../src/server/proxy/turns.ts';
import { crowdOf, FEW_CALLS } from '../../src/server/unary/connection-room.ts';
import { API_LIMITS, CRI_LIMITS, GRPC_LIMITS } from '../../src/server/unary/server-budget.ts';

const page = readFileSync('docs/limits.md', 'utf8');
const rows = page
  .split('\n')
  .filter((line) => line.startsWith('| '))
  .map((line) => line.split('|').map((cell) => cell.trim()))
  .map(([, what = '', limit = '']) => [what, limit] as const);
const limitOf = (what: string): string | undefined => rows.find(([name]) => name.startsWith(what))?.[1];

const count = (value: number): string => value.toLocaleString('en-US');
const size = (bytes: number): string => (bytes >= MiB ? `${bytes / MiB} MiB` : `${bytes / 1024} KiB`);
const time = (ms: number): string => `${ms / 1000} s`;

describe('limits in docs/limits.md', () => {
  test.each([
    ['client connections', count(CONNECTION_LIMIT)],
    ['time for a client', time(LIMITS.handshakeTimeout)],
    ['streams of a connection', `${count(LIMITS.streamLimit)}, announced in SETTINGS`],
    [`streams of all connections, beyond ${SHARED_LIMITS.streams.reserved} of each`, count(SHARED_LIMITS.streams.all)],
    ['SETTINGS that are not acknowledged', count(LIMITS.settingsLimit)],
    ['PING, SETTINGS or RST_STREAM', `${count(FLOOD_LIMIT)} a second`],
    ['header list of a client', size(LIMITS.clientHeaderListLimit)],
    ['headers of requests that wait', size(HEADERS_LIMIT)],
    ['header block of the backend', size(LIMITS.headerListLimit)],
    ['data of the backend that waits for a client', `${size(LIMITS.queueLimit)} for a connection`],
    ['data of the backend that waits for clients, of all connections', size(SHARED_LIMITS.queued)],
    ['data that the backend may send beyond', size(LIMITS.readAhead)],
    ['data of handled calls', `${size(CONNECTION_WINDOW)} for a connection`],
    ['request that is copied', size(LIMITS.requestLimit)],
    ['response that is held', size(LIMITS.responseLimit)],
    [
      'requests and responses that are held',
      `${size(SHARED_LIMITS.held.reserved)} of each connection, and ${size(SHARED_LIMITS.held.all)} of all beyond those`,
    ],
    [
      'data that waits for a client, above which',
      `${size(OVERFULL * LIMITS.queueLimit)} for a connection; ${size(OVERFULL_IF_ALL_FULL * LIMITS.queueLimit)} if the data of all has reached its limit`,
    ],
    [
      'connections that are closed',
      `${count(SHARED_LIMITS.lingering)}, for ${time(LIMITS.lingerTimeout)}, and for up to ${time(LIMITS.deliveryTimeout)} while the client has answers to read`,
    ],
    [
      'calls that run',
      `${count(SHARED_LIMITS.calls.all)}; ${SHARED_LIMITS.calls.reserved} more of each connection on the CRI socket`,
    ],
    [
      'of these, unary calls with compressed',
      `${count(SHARED_LIMITS.calls.compressed)}; one connection has ${count(SHARED_LIMITS.calls.compressed / 2)} of them, a second one ${count(SHARED_LIMITS.calls.compressed / 4)}, and so on`,
    ],
    ['longest request', `${size(CRI_LIMITS.requestLimit)}; ${size(API_LIMITS.requestLimit)} in the resize API`],
    ['longest request that the resize API decodes', size(LONGEST_REQUEST)],
    ['requests that wait for their last part', size(SHARED_LIMITS.requests)],
    [
      'requests, from the start of their call',
      [
        `${size(CRI_LIMITS.requestBytes)} from the CRI socket, ${size(API_LIMITS.requestBytes)} in the resize API`,
        `of these, ${size(CRI_LIMITS.shortRequestBytes)} and ${size(API_LIMITS.shortRequestBytes)} only for requests up to ${size(GRPC_LIMITS.shortRequest)}`,
        `each part of a stream or a compressed call counts ${GRPC_LIMITS.partOverhead} bytes more`,
      ].join('; '),
    ],
    ['request after decompression', `${size(GRPC_LIMITS.decompressedBytes)}, one at a time`],
    ['connections to the resize', count(API_LIMITS.connections)],
    ['ended HTTP/2 sessions', `${count(GRPC_LIMITS.keptSessions)}, about 25 KB each`],
    ['resizes in progress', count(defaultBounds.active)],
    [
      'watches',
      [
        `${count(defaultBounds.watchers)}, with ${count(defaultBounds.unreadEvents)} unread events each`,
        `one client (a process, or a connection of an unknown one) has ${defaultBounds.watchers / 2} of them, a second one ${defaultBounds.watchers / 4}, and so on`,
      ].join('; '),
    ],
    ['frames of one read', `${count(TURN_COST)}; one that opens a call counts as ${count(HEADERS_COST)}`],
    ['time of one turn', `${TURN_MS} ms; each connection in turn`],
    [
      'handled calls that start in one turn',
      `${size(STARTS_COST)} of requests, each call with ${size(CALL_COST)} more, or one longer request; each connection in turn`,
    ],
    ['lines of the log', size(LOG_LIMITS.bufferBytes)],
    [
      'lines of one message at the levels warn',
      `${count(LOG_LIMITS.warningsPerSecond)} a second, after ${count(10 * LOG_LIMITS.warningsPerSecond)} at once`,
    ],
    [
      'lines of one message at the levels debug',
      `${count(LOG_LIMITS.linesPerSecond)} a second, after ${count(2 * LOG_LIMITS.linesPerSecond)} at once`,
    ],
    ['calls that have not ended', count(MAX_CALLS)],
    ['requests of these calls', `${size(MAX_REQUEST_BYTES)} together, and ${size(MAX_MESSAGE_BYTES)} each`],
    [
      'responses that have not arrived',
      `${size(MAX_RESPONSE_BYTES)} together, and ${size(MAX_MESSAGE_BYTES)} each; memory is taken as they arrive`,
    ],
    ['bytes that wait for the socket', `${size(BACKLOG_LIMIT)}, above which no call begins`],
    ['header block of containerd', size(HEADER_LIST_LIMIT)],
    ['frames of containerd', `${count(FLOOD_LIMIT)} a second`],
    ["time for containerd's", time(HANDSHAKE_MS)],
    ['connections that containerd has', count(MAX_LEAVING)],
    ['wait for the next attempt', time(NEXT_ATTEMPT_MS)],
    [
      'wait for the journal',
      `${time(LONGEST_CHANGE_MS)} for a change that runs; while it waits for changes of other pods, ${time(LONGEST_CHANGE_MS)} without ` +
        `one that ends, and ${time(LONGEST_WAIT_MS)} in all`,
    ],
    ['wait for the backend', time(ANSWER_MS)],
    [
      'files of cgroups that stay open',
      `${count(MAX_OPEN_FILES)}, and an eighth of the descriptors that the process may have`,
    ],
    [
      'connections for metrics',
      `${count(MONITORING_LIMITS.connections)}, for ${time(MONITORING_LIMITS.connectionMs)} each`,
    ],
    ['reads for the status page', `one in ${time(MONITORING_LIMITS.pageMs)}`],
    [
      'status pages with live updates',
      `${count(MONITORING_LIMITS.streams)}, for ${MONITORING_LIMITS.streamAgeMs / 60_000} min each`,
    ],
    [
      'updates that wait for one of them',
      `the first one, and ${size(MONITORING_LIMITS.streamBytes)}; a client that takes nothing for ${time(MONITORING_LIMITS.streamMs)}`,
    ],
    [
      'reads for live updates',
      `one in ${time(MONITORING_LIMITS.streamMs)} and one after each resize, at least ${time(MONITORING_LIMITS.streamPauseMs)} apart, and half of the time at most`,
    ],
    ['reads of the token file', `one in ${time(MONITORING_LIMITS.tokenMs)}`],
  ])('docs/limits.md has the limit of the code for: %s', (what, limit) => {
    expect(limitOf(what)).toBe(limit);
  });

  test('docs/limits.md lists each counted budget', () => {
    const refused = createCounters().families.find(({ description }) => description.name.endsWith('refused_total'));
    const budgets = [...(refused?.series() ?? [])].map(({ labels: [budget] }) => budget);
    const listed = [...page.matchAll(/\| `([a-z_]+)` \|$/gm)].map(([, budget]) => budget);
    expect([...new Set(listed.filter((name) => name !== 'budget'))].sort()).toEqual(budgets.sort());
  });

  test('docs/limits.md has the bytes that each client may hold', () => {
    const { reserved, all } = SHARED_LIMITS.held;
    expect(page).toContain(`The first ${size(reserved)} of each connection count only for itself.`);
    expect(page).toContain(`One client gets ${size(all / 2)}, a second one ${size(all / 4)} while`);
  });

  test('docs/limits.md has the number of connections above which one is closed', () => {
    expect(page).toContain(
      `the CRI socket (${count(CONNECTION_LIMIT)} connections)\nand at the resize API (${count(API_LIMITS.connections)})`,
    );
    expect(page).toContain(`no running call and fewer than ${FEW_CALLS} ended ones`);
    expect([crowdOf(CONNECTION_LIMIT) / CONNECTION_LIMIT, page]).toEqual([1 / 4, expect.stringContaining('a quarter')]);
  });

  test('docs/limits.md has the sum of the budgets', () => {
    const { queued, held, requests } = SHARED_LIMITS;
    const handled = CRI_LIMITS.requestBytes + API_LIMITS.requestBytes;
    const waiting = queued + CONNECTION_LIMIT * DEFAULT_WINDOW;
    const amended = held.all + CONNECTION_LIMIT * held.reserved;
    const own = MAX_REQUEST_BYTES + MAX_RESPONSE_BYTES;
    // Its bytes as they arrive and in one piece, and its text with two bytes for each character.
    const podObject = 4 * LONGEST_OBJECT;
    expect(limitOf('a pod object of the API server (`--kubeconfig`)')).toContain(`${LONGEST_OBJECT / MiB} MiB of JSON`);
    const { bufferBytes } = LOG_LIMITS;
    const parts = [waiting, amended, requests, handled, GRPC_LIMITS.decompressedBytes, own, bufferBytes, podObject];
    const sum = Math.round(parts.reduce((total, bytes) => total + bytes, 0) / MiB);
    expect(limitOf('sum of these budgets')).toBe(`${sum} MiB`);
  });

  test('the limits of the unit in docs/limits.md are those of its file', () => {
    const unit = readFileSync('systemd/cri-resize-shim.service', 'utf8');
    for (const [line] of page.matchAll(/(?<=`)(?:MemoryMax|LimitCORE)=\w+/g)) expect(unit).toContain(`\n${line}\n`);
  });
});
