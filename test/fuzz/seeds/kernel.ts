/** Files of the kernel, as it prints them. */

export const mountinfo = [
  '22 1 0:20 / / rw,relatime - overlay overlay rw,lowerdir=/a,upperdir=/b',
  '23 22 0:21 / /proc rw,nosuid,nodev,noexec shared:12 - proc proc rw',
  '24 22 8:1 / /var/lib/kubelet rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw',
  '45 24 0:45 / /var/lib/kubelet/pods/1b4e28ba-2fa1-11d2-883f-0016d3cca427/volumes/kubernetes.io~empty-dir/cache rw,relatime shared:5 - tmpfs tmpfs rw,size=65536k,noswap',
  '46 24 0:46 / /var/lib/kubelet/pods/1b4e28ba-2fa1-11d2-883f-0016d3cca427/volumes/kubernetes.io~empty-dir/my\\040data rw - tmpfs tmpfs rw,size=1g,mode=1777',
  '47 45 0:47 /sub /var/lib/kubelet/pods/x/volumes/kubernetes.io~secret/token ro - tmpfs tmpfs rw,size=4k',
  '',
].join('\n');

export const procCgroup = '12:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/kubepods/burstable/pod1/c1\n';

export const meminfo =
  'MemTotal:       16384000 kB\nMemFree:         1024000 kB\nSwapTotal:       1048572 kB\nSwapFree:        1047548 kB\n';

export const volumeAnnotations: readonly string[] = [
  'cache=64Mi',
  'data=12.5%',
  'cache=50%/web',
  'a-b=follow',
  'x=fixed',
];

export const cpuLists: readonly string[] = ['0-3,8', 'all', 'N', '0-10:2/4', '0', '0-8191', 'all:1/2', '1-N,3\n'];

const memoryStat = [
  'anon 1048576',
  'file 2097152',
  'kernel 65536',
  'kernel_stack 16384',
  'pagetables 8192',
  'percpu 0',
  'sock 0',
  'shmem 4096',
  'inactive_anon 524288',
  'active_anon 524288',
  'inactive_file 1048576',
  'unevictable 0',
  'slab_reclaimable 4096',
  'slab_unreclaimable 8192',
  '',
].join('\n');

export const cgroupFiles = {
  'memory.max': '134217728\n',
  'memory.high': 'max\n',
  'memory.current': '3145728\n',
  'memory.stat': memoryStat,
  'memory.events': 'low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\noom_group_kill 0\n',
  'memory.swap.max': '67108864\n',
  'memory.swap.high': 'max\n',
  'memory.swap.current': '4096\n',
  'memory.zswap.writeback': '1\n',
  'memory.oom.group': '0\n',
  'cpu.max': '50000 100000\n',
  'cpu.weight': '20\n',
  'cpuset.cpus': '0-3\n',
  'cpuset.cpus.effective': '0-3\n',
  'io.max': '8:0 rbps=max wbps=1048576 riops=max wiops=max\n',
} as const;
