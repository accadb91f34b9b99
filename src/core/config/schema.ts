import * as z from 'zod/mini';
import { duration, durationForm } from './duration.ts';
import {
  absolutePath,
  addressForm,
  bind,
  bindForm,
  kubeconfig,
  kubeconfigForm,
  mode,
  modeForm,
  nodeName,
  nodeNameForm,
  optionalAddressForm,
  optionalPath,
  optionalPathForm,
  optionalPid,
  optionalPidForm,
  optionalSocketPath,
  pathForm,
  socketPath,
} from './values.ts';

/** `apiVersion` and `kind` of a configuration file. */
export const apiVersion = 'cri-resize-shim.io/v1alpha1';
export const kind = 'ShimConfiguration';

export const logLevels = ['trace', 'debug', 'info', 'warn', 'error'] as const;

export const volumesFollow = ['auto', 'never'] as const;

export const cgroupDrivers = ['auto', 'cgroupfs', 'systemd'] as const;

/** `one of a, b`. */
export const alternatives = (values: readonly string[]): string =>
  values.length === 1 ? values.join() : `one of ${values.join(', ')}`;

/** How --help and the documentation describe a setting. */
interface SettingText {
  /** Name of the value in --help. */
  readonly placeholder: string;
  /** The allowed values: completes "must be". */
  readonly allowed: string;
  readonly description: string;
}

const settingTexts = z.registry<SettingText>();

/** A setting with its default value as a user writes it. */
function setting<Type extends z.core.SomeType>(
  type: Type,
  fallback: z.core.input<Type>,
  text: SettingText,
): z.ZodMiniPrefault<Type> {
  const withDefault = z.prefault(type, fallback);
  settingTexts.add(withDefault, text);
  return withDefault;
}

const booleanForm = 'true or false';

/**
 * All settings. The keys are those of the configuration file; flags are the same in kebab case. Help and
 * docs/configuration.md are generated from this. Uses zod/mini: kubelet waits for our first response, and full zod
 * takes several times as long to load.
 */
export const schema = z.strictObject({
  listen: setting(socketPath, 'unix:///run/cri-resize-shim/cri-resize-shim.sock', {
    placeholder: 'ADDRESS',
    allowed: addressForm,
    description: 'Socket on which the shim serves the CRI.',
  }),
  containerRuntimeEndpoint: setting(socketPath, 'unix:///run/containerd/containerd.sock', {
    placeholder: 'ADDRESS',
    allowed: addressForm,
    description: 'CRI socket of containerd, to which the shim forwards calls.',
  }),
  kubeletRoot: setting(absolutePath, '/var/lib/kubelet', {
    placeholder: 'FOLDER',
    allowed: pathForm,
    description: 'Root folder of kubelet, which contains the volumes of pods.',
  }),
  mountsOfPid: setting(optionalPid, '', {
    placeholder: 'PID',
    allowed: optionalPidForm,
    description:
      'Process in whose mount namespace to find the volumes of pods if mounts of the node do not propagate to the shim: `1` if the shim runs in a container.',
  }),
  cgroupRoot: setting(absolutePath, '/sys/fs/cgroup', {
    placeholder: 'FOLDER',
    allowed: pathForm,
    description: 'Mount point of the cgroup v2 hierarchy.',
  }),
  cgroupDriver: setting(z.enum(cgroupDrivers), 'auto', {
    placeholder: 'DRIVER',
    allowed: alternatives(cgroupDrivers),
    description:
      'How to set the limits of pods: `cgroupfs` writes the files of their cgroups, `systemd` asks systemd over D-Bus, `auto` does as the runtime does.',
  }),
  stateFolder: setting(absolutePath, '/var/lib/cri-resize-shim', {
    placeholder: 'FOLDER',
    allowed: pathForm,
    description:
      'Folder of the journal, from which a restart recovers unfinished resizes. Must be on a disk and used by nothing else.',
  }),
  intercept: setting(z.boolean(), true, {
    placeholder: 'BOOL',
    allowed: booleanForm,
    description:
      'Whether to act on resizes. With `false`, the shim forwards every call unchanged: use this in an incident.',
  }),
  resizeListen: setting(optionalSocketPath, 'unix:///run/cri-resize-shim/resize.sock', {
    placeholder: 'ADDRESS',
    allowed: optionalAddressForm,
    description: 'Socket on which the shim serves the resize API.',
  }),
  resizeSocketMode: setting(mode, '0600', {
    placeholder: 'MODE',
    allowed: modeForm,
    description: 'File mode of the resize API socket. Any user who can connect can resize any pod.',
  }),
  metricsBind: setting(bind, '', {
    placeholder: 'ADDRESS',
    allowed: bindForm,
    description:
      'Address on which the shim serves metrics, health checks and a status page over HTTP (docs/metrics.md). If empty, it does not serve them.',
  }),
  metricsTokenFile: setting(optionalPath, '', {
    placeholder: 'FILE',
    allowed: optionalPathForm,
    description:
      'File with the bearer token that every request to `metricsBind` must have. Only its owner and group may read it. If empty, no token is needed.',
  }),
  kubeconfig: setting(kubeconfig, '', {
    placeholder: 'FILE',
    allowed: kubeconfigForm,
    description:
      'Credentials for the Kubernetes API, from which the shim reads the specs and the annotations of the pods of this node. If empty, it does not connect to the API.',
  }),
  nodeName: setting(nodeName, '', {
    placeholder: 'NAME',
    allowed: nodeNameForm,
    description: 'Name of this node in Kubernetes. If empty, the host name in lower case, like kubelet.',
  }),
  foresight: setting(z.boolean(), true, {
    placeholder: 'BOOL',
    allowed: booleanForm,
    description:
      'Whether to read the resizes that kubelet (1.33 and later) has admitted from its state files, and to prepare for them. Also needed to recognize volumes that kubelet resizes itself.',
  }),
  volumesFollow: setting(z.enum(volumesFollow), 'auto', {
    placeholder: 'WHEN',
    allowed: alternatives(volumesFollow),
    description:
      "Whether memory-backed volumes without an annotation follow the pod's memory limit: `auto` if kubelet has sized them from it, up to their sizeLimit if `kubeconfig` is set, and up to the size of the mount otherwise; `never` leaves them as they are.",
  }),
  logLevel: setting(z.enum(logLevels), 'info', {
    placeholder: 'LEVEL',
    allowed: alternatives(logLevels),
    description: 'Lowest level to log.',
  }),
  logPassedCalls: setting(z.boolean(), false, {
    placeholder: 'BOOL',
    allowed: booleanForm,
    description: 'Whether to log each call that is forwarded unchanged.',
  }),
  reclaimTimeout: setting(duration, '30s', {
    placeholder: 'DURATION',
    allowed: durationForm,
    description:
      'Maximum time to reclaim memory before a limit is lowered. A shorter deadline of the call takes precedence.',
  }),
  shutdownTimeout: setting(duration, '30s', {
    placeholder: 'DURATION',
    allowed: durationForm,
    description: 'Maximum time for running calls to finish after SIGTERM. The shim then cancels them.',
  }),
});

/** The shim's validated settings. Sockets and folders are absolute paths, durations are milliseconds. */
export type Config = Readonly<z.output<typeof schema>>;
export type ConfigKey = keyof Config;

/** Settings as a user writes them, in a file or as flags. */
export type Settings = Partial<z.input<typeof schema>>;

/** The settings in the order of the schema. */
export const configKeys = Object.keys(schema.shape) as ConfigKey[];

/** The flag of a setting: `--container-runtime-endpoint` for `containerRuntimeEndpoint`. */
export const flagOf = (key: ConfigKey): string => `--${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

/** A setting's default value as a user writes it. */
export const defaultOf = (key: ConfigKey): string => settingOf(key).fallback;

/** How --help and the documentation show a setting. */
export interface Setting extends SettingText {
  /** The default value as a user writes it. */
  readonly fallback: string;
  readonly isBoolean: boolean;
}

/** Returns the texts and the default value of a setting. */
export function settingOf(key: ConfigKey): Setting {
  const type = schema.shape[key];
  const fallback = type.def.defaultValue;
  return {
    ...(settingTexts.get(type) ?? { description: '', placeholder: '', allowed: '' }),
    fallback: String(fallback),
    isBoolean: typeof fallback === 'boolean',
  };
}
