import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  cgroupDrivers,
  containerCgroupIn,
  containerIdOf,
  driverOf,
  expandSlice,
  isBestEffort,
  isKubeletCgroup,
  kubeletPodCgroups,
} from '../../src/cgroups/drivers.ts';

const id = 'c0ffee'.repeat(11).slice(0, 64);
const uid = '3f2504e0-4f89-11d3-9a0c-0305e82c3301';

describe('the cgroupfs driver', () => {
  const { cgroupfs } = cgroupDrivers;

  test('the cgroupfs driver uses the parent as the path of the pod, with the container in it', () => {
    const parent = `/kubepods/burstable/pod${uid}`;
    expect(cgroupfs.podCgroup(parent)).toBe(parent);
    expect(cgroupfs.containerCgroup(parent, id)).toBe(`${parent}/${id}`);
  });

  test('the cgroupfs driver normalizes slashes of a path', () => {
    expect(cgroupfs.podCgroup('/kubepods//pod1/')).toBe('/kubepods/pod1');
    expect(cgroupfs.podCgroup('/')).toBe('/');
    expect(cgroupfs.containerCgroup('/', id)).toBe(`/${id}`);
  });

  test('the cgroupfs driver returns no path for an empty or relative parent', () => {
    for (const parent of ['', 'kubepods/pod1']) {
      expect(cgroupfs.podCgroup(parent)).toBeUndefined();
      expect(cgroupfs.containerCgroup(parent, id)).toBeUndefined();
    }
  });

  test('the cgroupfs driver rejects names that leave the parent', () => {
    const unavailable = expect.objectContaining({ reason: 'CGROUP_UNAVAILABLE' }) as Error;
    expect(() => cgroupfs.podCgroup('/kubepods/../../etc')).toThrow(unavailable);
    for (const bad of ['', '..', '../x', 'a/b'])
      expect(() => cgroupfs.containerCgroup('/pod', bad)).toThrow(unavailable);
  });
});

describe('the systemd driver', () => {
  const { systemd } = cgroupDrivers;
  const slice = `kubepods-burstable-pod${uid.replaceAll('-', '_')}.slice`;
  const path = `/kubepods.slice/kubepods-burstable.slice/${slice}`;

  test('the systemd driver nests a slice by its dashes, with the container in a scope', () => {
    expect(systemd.podCgroup(slice)).toBe(path);
    expect(systemd.containerCgroup(slice, id)).toBe(`${path}/cri-containerd-${id}.scope`);
  });

  test('the systemd driver accepts a full path', () => {
    expect(systemd.podCgroup(path)).toBe(path);
  });

  test('the systemd driver expands the root slice, and returns no path for an empty parent', () => {
    expect(expandSlice('-.slice')).toBe('/');
    expect(systemd.containerCgroup('-.slice', id)).toBe(`/cri-containerd-${id}.scope`);
    expect(systemd.podCgroup('')).toBeUndefined();
  });

  test.each(['a', '.slice', 'a-.slice', '-a.slice', 'a--b.slice', 'a b.slice', '..slice/x.slice', 'a.slice/../b'])(
    'rejects the slice %j',
    (name) => {
      expect(() => expandSlice(name)).toThrow(expect.objectContaining({ reason: 'CGROUP_UNAVAILABLE' }));
    },
  );

  test('expands each part of a slice to a folder, with the full slice as the last folder', () => {
    const part = fc.stringMatching(/^[a-z0-9_]{1,12}$/);
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 6 }), (parts) => {
        const folders = expandSlice(`${parts.join('-')}.slice`)
          .slice(1)
          .split('/');
        expect(folders).toHaveLength(parts.length);
        expect(folders.at(-1)).toBe(`${parts.join('-')}.slice`);
        for (const [index, folder] of folders.entries()) {
          if (index > 0) expect(folder.startsWith(folders[index - 1]!.replace('.slice', '-'))).toBe(true);
        }
      }),
    );
  });
});

describe('the cgroup driver', () => {
  test.each([
    ['/kubepods/burstable/pod1', 'cgroupfs'],
    ['kubepods-pod1.slice', 'systemd'],
    ['/kubepods.slice/kubepods-pod1.slice', 'systemd'],
    ['/kubepods.slice/pod1', 'cgroupfs'],
    ['', 'cgroupfs'],
  ])('the cgroup driver for the parent %j is %s', (parent, name) => {
    expect(driverOf(parent).name).toBe(name);
  });
});

describe('the cgroup of a container in a path', () => {
  test('finds the cgroup of a container in the path of its child cgroups', () => {
    expect(containerCgroupIn(`/kubepods/pod1/${id}/init.scope`, id)).toBe(`/kubepods/pod1/${id}`);
    const scope = `/kubepods.slice/kubepods-pod1.slice/cri-containerd-${id}.scope`;
    expect(containerCgroupIn(`${scope}/system.slice/x.service`, id)).toBe(scope);
    expect(containerCgroupIn(scope, id)).toBe(scope);
  });

  test('does not find the cgroup of a container in the path of another cgroup', () => {
    expect(containerCgroupIn(`/kubepods/pod1/${id}`, id.slice(0, 12))).toBeUndefined();
    expect(containerCgroupIn('/system.slice', id)).toBeUndefined();
  });

  test('reads the container id from the name of a container cgroup, and from no other name', () => {
    for (const driver of Object.values(cgroupDrivers)) {
      const path = driver.containerCgroup(driver.name === 'systemd' ? 'pod1.slice' : '/pod1', id) ?? '';
      expect(containerIdOf(path.split('/').at(-1) ?? '')).toBe(id);
    }
    for (const name of ['init.scope', `crio-${id}.scope`, `${id}.scope`, `cri-containerd-${id}`, id.slice(1), '']) {
      expect(containerIdOf(name)).toBeUndefined();
    }
  });
});

test.each([
  ['/kubepods/besteffort/pod1', true],
  ['/other/kubepods/besteffort/pod1', true],
  [expandSlice('kubepods-besteffort-pod1.slice'), true],
  [expandSlice('other-kubepods-besteffort-pod1.slice'), true],
  ['/kubepods/burstable/pod1', false],
  ['/kubepods/pod1', false],
  ['/kubepods/besteffort', false],
  [expandSlice('kubepods-burstable-pod1.slice'), false],
  [expandSlice('kubepods-pod1.slice'), false],
])('isBestEffort(%s) is %s', (cgroup, expected) => expect(isBestEffort(cgroup)).toBe(expected));

test.each([
  ['/kubepods', true],
  ['/other/kubepods', true],
  ['/kubepods/burstable', true],
  ['/kubepods/besteffort', true],
  [expandSlice('kubepods.slice'), true],
  [expandSlice('kubepods-burstable.slice'), true],
  [expandSlice('other-kubepods-besteffort.slice'), true],
  ['/', false],
  ['/other', false],
  ['/burstable', false],
  ['/kubepods/pod1', false],
  ['/notkubepods', false],
  [expandSlice('other.slice'), false],
  [expandSlice('kubepods-pod1.slice'), false],
])('isKubeletCgroup(%s) is %s', (cgroup, expected) => expect(isKubeletCgroup(cgroup)).toBe(expected));

describe('the cgroups that kubelet may give a pod', () => {
  test.each(['/kubepods/pod1', '/kubepods/burstable/pod1', '/kubepods/besteffort/pod1'])(
    'derives the cgroups of a pod for all QoS classes from the cgroup %s of another pod',
    (other) => {
      expect(kubeletPodCgroups(other, 'a-b')).toEqual([
        '/kubepods/poda-b',
        '/kubepods/burstable/poda-b',
        '/kubepods/besteffort/poda-b',
      ]);
    },
  );

  test('derives the cgroups of a pod with the systemd driver below a cgroup root', () => {
    const below = '/kubelet.slice/kubelet-kubepods.slice';
    const other = `${below}/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod1.slice`;
    expect(kubeletPodCgroups(other, 'a-b')).toEqual([
      `${below}/kubelet-kubepods-poda_b.slice`,
      `${below}/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-poda_b.slice`,
      `${below}/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-poda_b.slice`,
    ]);
  });

  test('derives no pod cgroups from a cgroup of another program, or for an invalid uid', () => {
    expect([kubeletPodCgroups('/tenant/pod1', 'a'), kubeletPodCgroups('/kubepods/pod1', '../x')]).toEqual([
      undefined,
      undefined,
    ]);
  });
});
