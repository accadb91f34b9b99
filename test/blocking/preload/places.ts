/** The subject of a synchronous call, as docs/limits.md names it. */
export interface Place {
  readonly what: string;
  /** The event that makes the shim do it. */
  readonly when: string;
}

interface Rule extends Place {
  readonly path: RegExp;
}

const RESIZES = 'resizes, amended responses';
const VOLUMES = 'a volume is looked up or resized';

const rules: readonly Rule[] = [
  { path: /^\/sys\/fs\/cgroup(\/|$)/, what: 'a file or folder of a cgroup', when: RESIZES },
  { path: /^\/sys\/devices\/system\//, what: 'the lists of CPUs and memory nodes', when: RESIZES },
  { path: /^\/proc\/self\/fd\/\d+$/, what: 'the path of an open file', when: RESIZES },
  { path: /^\/proc\/self\/fd\/\d+\//, what: "a folder in a volume's path", when: VOLUMES },
  { path: /^\/proc\/\d+\/cgroup$/, what: '`/proc/PID/cgroup`', when: 'the cgroup of a container is looked up' },
  { path: /^\/proc\/(self|\d+)\/mountinfo$/, what: '`/proc/PID/mountinfo`', when: VOLUMES },
  { path: /^\/proc\/self\/fdinfo\/\d+$/, what: '`/proc/self/fdinfo/FD`', when: VOLUMES },
  { path: /^\/proc\/\d+\/root/, what: "the root of a container's mounts", when: VOLUMES },
  { path: /^\/proc\/self\/fd$/, what: '`/proc/self/fd`', when: 'metrics are read' },
  { path: /^\/proc\/\d+\/comm$/, what: '`/proc/PID/comm`', when: 'a client connects to the resize API' },
  { path: /^\/proc\/(meminfo|swaps|vmstat|stat)$/, what: 'the memory of the node', when: 'resizes, metrics are read' },
  {
    path: /^\/proc\/self\/(auxv|limits)$/,
    what: 'the page size, and the limit of open files, of the process',
    when: 'the start',
  },
  { path: /^\/proc\/net\/unix$/, what: '`/proc/net/unix`', when: 'the start' },
  { path: /^\/proc$/, what: '`/proc`', when: 'the start' },
  { path: /^\/var\/lib\/kubelet\/[^/]+_state$/, what: 'a state file of kubelet', when: 'kubelet has changed it' },
  { path: /^\/var\/lib\/kubelet(\/pods(\/[^/]+)?)?$/, what: "kubelet's folder", when: 'pods come and go, resizes' },
  { path: /^\/var\/lib\/kubelet\/pods\/[^/]+\/volumes/, what: "a volume's folder", when: VOLUMES },
  { path: /^\/(run(\/.*)?)?$/, what: 'a socket or its folder', when: 'a connection to the backend is made' },
  { path: /\/kubeconfig$/, what: 'the kubeconfig', when: 'a request to the API server' },
  {
    path: /\/(dist|node_modules)\//,
    what: 'a file of the program',
    when: 'the start, and the first call that needs it',
  },
];

const KOFFI: Readonly<Record<string, string>> = {
  getsockopt: 'a client connects',
  syscall: VOLUMES,
  malloc_trim: 'once after the start, and after a burst',
  madvise: 'once after the start',
  inotify_add_watch: RESIZES,
  inotify_rm_watch: RESIZES,
  inotify_init1: 'the start',
  flock: 'the start',
  socket: 'the start',
  sendto: 'the state of the service changes',
};

/** Returns the subject of a path, or undefined if docs/limits.md does not name it. */
export const placeOf = (path: string): Place | undefined => rules.find((rule) => rule.path.test(path));

/** Returns the place for a C function called through koffi, or undefined if docs/limits.md does not name it. */
export function placeOfFunction(name: string): Place | undefined {
  const when = KOFFI[name];
  if (when === undefined) return undefined;
  return { what: name === 'syscall' ? '`fspick`, `fsconfig`' : `\`${name}\``, when };
}
