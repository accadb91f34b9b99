import { describe, expect, test } from 'vitest';
import { flagsIn, withEndpoint, withFlag } from '../../../src/install/kubelet/setting.ts';

const CONTAINERD = 'unix:///run/containerd/containerd.sock';
const OURS = 'unix:///run/cri-resize-shim/cri-resize-shim.sock';
const FLAG = '--container-runtime-endpoint';

const config = (line: string): string => `# This node's own.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration # of kubelet
${line}clusterDNS:
- 10.96.0.10   # not indented
evictionHard: {memory.available:  100Mi}
`;

describe('the endpoint in a KubeletConfiguration', () => {
  test.each([
    [`containerRuntimeEndpoint: ${CONTAINERD} # by hand\n`, `containerRuntimeEndpoint: ${OURS} # by hand\n`],
    [`containerRuntimeEndpoint: "${CONTAINERD}"\n`, `containerRuntimeEndpoint: ${OURS}\n`],
    ['containerRuntimeEndpoint: ""\n', `containerRuntimeEndpoint: ${OURS}\n`],
    ['containerRuntimeEndpoint:\n', `containerRuntimeEndpoint: ${OURS}\n`],
    ['', `containerRuntimeEndpoint: ${OURS}\n`],
  ])('%j becomes %j, and no other byte changes', (before, after) => {
    expect(withEndpoint(config(before), OURS, 'f')).toBe(config(after));
  });

  test('is removed with its line', () => {
    expect(withEndpoint(config(`containerRuntimeEndpoint: ${OURS}\n`), undefined, 'f')).toBe(config(''));
    expect(withEndpoint(config(''), undefined, 'f')).toBe(config(''));
  });

  test('is set in a file without final line feed, and in JSON', () => {
    expect(withEndpoint('kind: KubeletConfiguration', OURS, 'f')).toBe(
      `kind: KubeletConfiguration\ncontainerRuntimeEndpoint: ${OURS}\n`,
    );
    const json = JSON.stringify({ kind: 'KubeletConfiguration', containerRuntimeEndpoint: CONTAINERD, maxPods: 9 });
    expect(withEndpoint(json, OURS, 'f')).toBe(json.replace(CONTAINERD, OURS));
    const without = JSON.stringify({ kind: 'KubeletConfiguration', maxPods: 9 });
    expect(JSON.parse(withEndpoint(without, OURS, 'f'))).toEqual({
      kind: 'KubeletConfiguration',
      maxPods: 9,
      containerRuntimeEndpoint: OURS,
    });
    expect(() => withEndpoint(json, undefined, 'f')).toThrow('unsupported layout, expected lines');
  });

  test('is rejected if YAML would read another value', () => {
    expect(() => withEndpoint(config(''), 'unix:///a b # c', 'f')).toThrow('cannot be written without quotes');
  });

  test.each(['kind: Pod\n', 'kind: [\n', '- kind\n', ''])('is rejected in %j', (text) => {
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
  ])('is changed in %j, and nothing else', (form) => {
    const before = form.replace('@', CONTAINERD);
    expect(flagsIn(before).map(({ endpoint }) => endpoint)).toEqual([CONTAINERD]);
    expect(withFlag(before, OURS, 'f')).toBe(form.replace('@', OURS));
  });

  test('is rejected if it is missing or occurs more than once', () => {
    expect(() => withFlag('ExecStart=kubelet\n', OURS, 'f')).toThrow('is missing');
    const twice = `A=${FLAG}=${CONTAINERD}\nB=${FLAG}=${CONTAINERD}\n`;
    expect(() => withFlag(twice, OURS, 'f')).toThrow(`f: ${FLAG} occurs more than once`);
  });
});
