import * as z from 'zod/mini';
import { bind, bindForm } from './bind.ts';
import { duration, durationForm } from './duration.ts';
import { mode, modeForm } from './mode.ts';
import { kubeconfig, kubeconfigForm, nodeName, nodeNameForm } from './kubernetes.ts';
import { optionalPid, optionalPidForm } from './pid.ts';
import { absolutePath, addressForm, optionalAddressForm, optionalSocketPath, pathForm, socketPath } from './path.ts';

/** `apiVersion` and `kind` of a configuration file. */
export const apiVersion = 'cri-resize-shim.io/v1alpha1';
export const kind = 'ShimConfiguration';

export const logLevels = ['trace', 'debug', 'info', 'warn', 'error'] as const;
export type LogLevel = (typeof logLevels)[number];

export const cgroupDrivers = ['auto', 'cgroupfs', 'systemd'] as const;

/** `one of a, b`. */
export const alternatives = (values: readonly string[]): string =>
  values.length === 1 ? values.join() : `one of ${values.join(', ')}`;

interface Words {
  /** The name of the value in --help. */
  readonly placeholder: string;
  /** Completes "must be". */
  readonly allowed: string;
  readonly description: string;
}

const wordsOf = z.registry<Words>();

/** A setting with its default, written as a user would. */
function setting<Type extends z.core.SomeType>(
  type: Type,
  fallback: z.core.input<Type>,
  words: Words,
): z.ZodMiniPrefault<Type> {
  const made = z.prefault(type, fallback);
  wordsOf.add(made, words);
  return made;
}

const switchForm = 'true or false';

/**
 * Every setting, once: keys are those of the file, flags are the same in kebab case. Help and docs/configuration.md are made
 * from this. By zod's mini variant: kubelet waits for our first answer, and the other one takes several times as long to load.
 */
export const schema = z.strictObject({
  listen: setting(socketPath, 'unix:///run/cri-resize-shim/cri-resize-shim.sock', {
    placeholder: 'ADDRESS',
    allowed: addressForm,
    description: 'Socket to serve the CRI on.',
  }),
  containerRuntimeEndpoint: setting(socketPath, 'unix:///run/containerd/containerd.sock', {
    placeholder: 'ADDRESS',
    allowed: addressForm,
    description: 'Socket of containerd, to which calls go on.',
  }),
  kubeletRoot: setting(absolutePath, '/var/lib/kubelet', {
    placeholder: 'FOLDER',
    allowed: pathForm,
    description: "Kubelet's root folder, under which the volumes of pods are mounted.",
  }),
  mountsOfPid: setting(optionalPid, '', {
    placeholder: 'PID',
    allowed: optionalPidForm,
    description:
      'A process in whose mount namespace the volumes of pods are, where they do not come into ours: `1` in a container of its own.',
  }),
  cgroupRoot: setting(absolutePath, '/sys/fs/cgroup', {
    placeholder: 'FOLDER',
    allowed: pathForm,
    description: 'Where the cgroup v2 hierarchy is mounted.',
  }),
  cgroupDriver: setting(z.enum(cgroupDrivers), 'auto', {
    placeholder: 'DRIVER',
    allowed: alternatives(cgroupDrivers),
    description:
      'Who sets the limits of pods: we in the files of their cgroups, or systemd, which owns these; `auto`: as the runtime is set up.',
  }),
  stateFolder: setting(absolutePath, '/var/lib/cri-resize-shim', {
    placeholder: 'FOLDER',
    allowed: pathForm,
    description: 'Where resizes under way are journalled, for a restart to finish or undo. On a disk; for us alone.',
  }),
  intercept: setting(z.boolean(), true, {
    placeholder: 'BOOL',
    allowed: switchForm,
    description: 'Act on resizes. With `false` every call passes untouched: the way out in an incident.',
  }),
  resizeListen: setting(optionalSocketPath, 'unix:///run/cri-resize-shim/resize.sock', {
    placeholder: 'ADDRESS',
    allowed: optionalAddressForm,
    description: 'Socket to serve the resize API on.',
  }),
  resizeSocketMode: setting(mode, '0600', {
    placeholder: 'MODE',
    allowed: modeForm,
    description: 'Who may connect to the resize API: whoever can resizes any pod.',
  }),
  metricsBind: setting(bind, '', {
    placeholder: 'ADDRESS',
    allowed: bindForm,
    description: 'Where to serve metrics, health checks and a page over HTTP (docs/metrics.md); empty: nowhere.',
  }),
  kubeconfig: setting(kubeconfig, '', {
    placeholder: 'FILE',
    allowed: kubeconfigForm,
    description: 'How to reach the Kubernetes API, to take changed annotations of pods as requests; empty: not at all.',
  }),
  nodeName: setting(nodeName, '', {
    placeholder: 'NAME',
    allowed: nodeNameForm,
    description: "This node's name in Kubernetes; empty: the host name in lower case, as kubelet has it.",
  }),
  foresight: setting(z.boolean(), true, {
    placeholder: 'BOOL',
    allowed: switchForm,
    description: 'Read what kubelet (1.33 and later) has admitted, where it writes that down, and prepare for it.',
  }),
  logLevel: setting(z.enum(logLevels), 'info', {
    placeholder: 'LEVEL',
    allowed: alternatives(logLevels),
    description: 'The lowest level that is logged.',
  }),
  logPassedCalls: setting(z.boolean(), false, {
    placeholder: 'BOOL',
    allowed: switchForm,
    description: 'Also log a line for each call that passes untouched.',
  }),
  reclaimTimeout: setting(duration, '30s', {
    placeholder: 'DURATION',
    allowed: durationForm,
    description:
      'How long memory may be reclaimed at most before a limit is lowered; less if the caller waits less long.',
  }),
  shutdownTimeout: setting(duration, '30s', {
    placeholder: 'DURATION',
    allowed: durationForm,
    description: 'How long running calls may take to finish after SIGTERM, before they are cut.',
  }),
});

/** The shim's settings, checked. Sockets and folders are absolute paths, durations are milliseconds. */
export type Config = Readonly<z.output<typeof schema>>;
export type ConfigKey = keyof Config;

/** The settings in the order of the schema. */
export const configKeys = Object.keys(schema.shape) as ConfigKey[];

/** `containerRuntimeEndpoint` is `--container-runtime-endpoint`. */
export const flagOf = (key: ConfigKey): string => `--${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

/** A setting's default, as a user would write it. */
export const defaultOf = (key: ConfigKey): string => settingOf(key).fallback;

/** What the schema says about a key, in words. */
export interface Setting {
  readonly description: string;
  readonly placeholder: string;
  readonly allowed: string;
  /** The default as a user would write it. */
  readonly fallback: string;
  /** Whether this is true or false. */
  readonly isSwitch: boolean;
}

export function settingOf(key: ConfigKey): Setting {
  const made = schema.shape[key];
  const { description, placeholder, allowed } = wordsOf.get(made) ?? { description: '', placeholder: '', allowed: '' };
  const fallback = made.def.defaultValue;
  return {
    description,
    placeholder,
    allowed,
    fallback: String(fallback),
    isSwitch: typeof fallback === 'boolean',
  };
}
