import { describe, expect, test } from 'vitest';
import { parseChanges } from '../../../src/resizectl/commands/changes.ts';
import { UsageError } from '../../../src/resizectl/output/failure.ts';

function usage(read: () => unknown): string {
  try {
    read();
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  throw new Error('no UsageError was thrown');
}

describe('parseChanges', () => {
  test('reads limits, requests and sizes of containers, pod and volumes', () => {
    const changes = parseChanges([
      ...['app.cpu=500m', 'app.memory=256Mi', 'app.requests.cpu=0.25', 'side.limits.memory=1e8', 'side.cpu=max'],
      ...['pod.memory=1Gi', 'pod.requests.memory=512Mi', 'volume.cache=50%/app', 'volume.tmp=follow', 'pod.cpu=max'],
    ]);
    expect(changes).toEqual({
      resources: { limits: { memory: '1Gi', cpu: 'max' }, requests: { memory: '512Mi' } },
      containers: {
        app: { limits: { cpu: '500m', memory: '256Mi' }, requests: { cpu: '0.25' } },
        side: { limits: { memory: '1e8', cpu: 'max' } },
      },
      volumes: { cache: '50%/app', tmp: 'follow' },
    });
  });

  test('accepts any name of a container or volume, also a reserved word', () => {
    expect(
      parseChanges(['container/pod.cpu=1', 'container/volume.cpu=2', 'container.cpu=3', '__proto__.cpu=4']),
    ).toEqual({
      containers: Object.fromEntries([
        ['pod', { limits: { cpu: '1' } }],
        ['volume', { limits: { cpu: '2' } }],
        ['container', { limits: { cpu: '3' } }],
        ['__proto__', { limits: { cpu: '4' } }],
      ]),
      volumes: {},
    });
    expect(parseChanges(['volume.cpu=50%']).volumes).toEqual({ cpu: '50%' });
  });

  test.each([
    ['app.cpu', /^invalid change "app\.cpu": expected CONTAINER\.cpu=QUANTITY, /],
    ['app.cpu=', /^invalid change/],
    ['cpu=1', /^invalid change/],
    ['app.memroy=1Gi', /^invalid change "app\.memroy=1Gi": expected .*: did you mean memory\?$/],
    ['app.request.cpu=1', /: did you mean requests\?$/],
    ['a.b.cpu=1', /volume\.NAME=SIZE$/],
    ['.cpu=1', /^invalid change/],
    ['app.gpu=1', /^invalid change/],
    ['app.max.cpu=1', /^invalid change/],
    ['a.b.c.cpu=1', /^invalid change/],
    ['pod/app.cpu=1', /^invalid change/],
    ['app.cpu=fast', /^app\.cpu: invalid quantity "fast": expected CPUs such as 500m or 1\.5, or max for no limit$/],
    ['app.memory=-5', /^app\.memory: invalid quantity "-5"/],
    ['app.memory=-1', /^app\.memory: invalid quantity "-1": .*, or max for no limit$/],
    ['pod.cpu=-1', /^pod\.cpu: invalid quantity "-1": .*, or max for no limit$/],
    [
      'app.requests.memory=max',
      /^app\.requests\.memory: invalid quantity "max": expected an amount of memory such as 256Mi or 1G$/,
    ],
    ['app.memory=256mi', /invalid quantity/],
    ['app.cpu=0', /^app\.cpu: invalid limit 0: use max to remove the limit$/],
    ['app.requests.cpu=0', /^app\.requests\.cpu: invalid request 0: leave it out to keep the current request$/],
  ])('rejects %s', (text, message) => {
    expect(usage(() => parseChanges([text]))).toMatch(message);
  });

  test.each([
    [['app.cpu=1', 'app.cpu=2'], 'app.cpu is set twice'],
    [['app.cpu=1', 'container/app.limits.cpu=2'], 'container/app.limits.cpu is set twice'],
    [['volume.a=1Mi', 'volume.a=1Mi'], 'volume.a is set twice'],
  ])('rejects %j because a value is set twice', (texts, message) => {
    expect(usage(() => parseChanges(texts))).toBe(message);
  });
});
