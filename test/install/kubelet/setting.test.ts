import { describe, expect, test } from 'vitest';
import { flagsIn, withEndpoint, withFlag } from '../../../src/install/kubelet/setting.ts';

const CONTAINERD = 'unix:///run/containerd/containerd.sock';
const OURS = 'unix:///run/cri-resize-shim/cri-resize-shim.sock';
const FLAG = '--container-runtime-endpoint';

const config = (endpoint: string): string => `# This node's own.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration # of kubelet
clusterDNS:
- 10.96.0.10 # not indented
evictionHard: { memory.available: 100Mi }
maxPods: 0110
${endpoint}`;

describe('the endpoint in a KubeletConfiguration', () => {
  test.each([
    [`containerRuntimeEndpoint: ${CONTAINERD} # by hand\n`, `containerRuntimeEndpoint: ${OURS} # by hand\n`],
    [`containerRuntimeEndpoint: "${CONTAINERD}"\n`, `containerRuntimeEndpoint: "${OURS}"\n`],
    ['containerRuntimeEndpoint: ""\n', `containerRuntimeEndpoint: "${OURS}"\n`],
    ['containerRuntimeEndpoint:\n', `containerRuntimeEndpoint: ${OURS}\n`],
    ['', `containerRuntimeEndpoint: ${OURS}\n`],
  ])('in a KubeletConfiguration, %j becomes %j and no other line changes', (before, after) => {
    expect(withEndpoint(config(before), OURS, 'f')).toBe(config(after));
  });

  test('the endpoint is removed from a KubeletConfiguration with its line', () => {
    expect(withEndpoint(config(`containerRuntimeEndpoint: ${OURS}\n`), undefined, 'f')).toBe(config(''));
    expect(withEndpoint(config(''), undefined, 'f')).toBe(config(''));
  });

  test('the endpoint is set in a file without a final line feed, and in JSON', () => {
    expect(withEndpoint('kind: KubeletConfiguration', OURS, 'f')).toBe(
      `kind: KubeletConfiguration\ncontainerRuntimeEndpoint: ${OURS}\n`,
    );
    for (const indent of [undefined, 2]) {
      const json = (values: object): string =>
        JSON.stringify({ kind: 'KubeletConfiguration', ...values, maxPods: 9 }, undefined, indent);
      expect(withEndpoint(json({ containerRuntimeEndpoint: CONTAINERD }), OURS, 'f')).toBe(
        json({ containerRuntimeEndpoint: OURS }),
      );
      expect(JSON.parse(withEndpoint(json({}), OURS, 'f'))).toEqual({
        kind: 'KubeletConfiguration',
        maxPods: 9,
        containerRuntimeEndpoint: OURS,
      });
      expect(withEndpoint(json({ containerRuntimeEndpoint: OURS }), undefined, 'f')).toBe(json({}));
    }
  });

  test('the endpoint is quoted if YAML would otherwise read another value', () => {
    expect(withEndpoint(config(''), 'unix:///a b # c', 'f')).toBe(
      config('containerRuntimeEndpoint: "unix:///a b # c"\n'),
    );
  });

  test('the endpoint is not changed if another key refers to it', () => {
    const text = `kind: KubeletConfiguration\ncontainerRuntimeEndpoint: &one ${CONTAINERD}\nimageServiceEndpoint: *one\n`;
    expect(() => withEndpoint(text, OURS, 'f')).toThrow('f: expected one mapping without shared values');
  });

  test.each(['kind: Pod\n', 'kind: [\n', '- kind\n', ''])('an invalid KubeletConfiguration is rejected: %j', (text) => {
    expect(() => withEndpoint(text, OURS, 'f')).toThrow(/^f( |:)/);
  });
});

describe('the flag in files of a unit', () => {
  test.each([
    `ExecStart=/usr/bin/kubelet ${FLAG}=@ --v=2\n`,
    `ExecStart=/usr/bin/kubelet ${FLAG} @\n`,
    `ExecStart=/usr/bin/kubelet "${FLAG}=@" --v=2\n`,
    `ExecStart=/usr/bin/kubelet ${FLAG}="@" --v=2\n`,
    `ExecStart=/usr/bin/kubelet \\\n  ${FLAG} \\\n  @ \\\n  --v=2\n`,
    `KUBELET_ARGS="--v=2 ${FLAG}=@"\n`,
    `# ${FLAG}=unix:///old.sock\n; ${FLAG}=unix:///older.sock\nKUBELET_ARGS=${FLAG}=@\n`,
  ])('the endpoint flag is changed in %j, and nothing else', (form) => {
    const before = form.replace('@', CONTAINERD);
    expect(flagsIn(before).map(({ endpoint }) => endpoint)).toEqual([CONTAINERD]);
    expect(withFlag(before, OURS, 'f')).toBe(form.replace('@', OURS));
  });

  test('the endpoint flag is rejected if it is missing or occurs more than once', () => {
    expect(() => withFlag('ExecStart=kubelet\n', OURS, 'f')).toThrow('is missing');
    const twice = `A=${FLAG}=${CONTAINERD}\nB=${FLAG}=${CONTAINERD}\n`;
    expect(() => withFlag(twice, OURS, 'f')).toThrow(`f: ${FLAG} occurs more than once`);
  });
});
