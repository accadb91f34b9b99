import { parseAllDocuments } from 'yaml';
import { messageOf } from '../../core/index.ts';

/** kubelet's default since 1.27 (SetDefaults_KubeletConfiguration in pkg/kubelet/apis/config/v1beta1/defaults.go). */
export const DEFAULT_ENDPOINT = 'unix:///run/containerd/containerd.sock';
export const ENDPOINT_KEY = 'containerRuntimeEndpoint';
export const API_VERSION = 'kubelet.config.k8s.io/v1beta1';
export const KIND = 'KubeletConfiguration';

/** The forms of a file that sets the endpoint. */
export type FileForm =
  /** The file of `--config`: a KubeletConfiguration. */
  | 'config'
  /** A file of `--config-dir`: a KubeletConfiguration that names its version. */
  | 'drop-in'
  /** kubeadm's instance-config.yaml: some fields of a KubeletConfiguration, without kind. */
  | 'patch';

/**
 * The endpoint setting in a file. `reset`: the key has no value. In a drop-in, this restores the default: the merge
 * patch removes the value, or sets it to "" (mergeKubeletConfigurations in cmd/kubelet/app/server.go, then
 * SetDefaults_KubeletConfiguration).
 */
export type Written = { readonly endpoint: string } | 'nothing' | 'reset';

/** Reads the endpoint in YAML or JSON text. Throws if kubelet could not read the text. @param file for errors */
export function writtenIn(text: string, file: string, form: FileForm): Written {
  const read = parsed(text, file, form);
  assertForm(read, file, form);
  if (!(ENDPOINT_KEY in read)) return 'nothing';
  const endpoint = read[ENDPOINT_KEY];
  if (endpoint === null || endpoint === '') return 'reset';
  if (typeof endpoint !== 'string') throw new Error(`${file}: ${ENDPOINT_KEY} is not a string`);
  return { endpoint };
}

/** Returns the first document. The last of several equal keys wins, as in kubelet's lenient decoding. */
function parsed(text: string, file: string, form: FileForm): Readonly<Record<string, unknown>> {
  const read = firstDocument(text, file);
  if (isRecord(read)) return read;
  // An empty patch is valid and changes nothing.
  if (form === 'patch' && (read === null || read === undefined)) return {};
  throw new Error(`${file} is not a ${KIND}`);
}

function firstDocument(text: string, file: string): unknown {
  const documents = parseAllDocuments(text, { merge: true, uniqueKeys: false, logLevel: 'error' });
  const [document] = Array.isArray(documents) ? documents : [];
  try {
    for (const problem of document?.errors ?? []) throw problem;
    return document?.toJS({ maxAliasCount: 100 });
  } catch (error) {
    throw new Error(`${file} is not valid YAML: ${messageOf(error).split('\n', 1)[0] ?? ''}`, { cause: error });
  }
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function assertForm(read: Readonly<Record<string, unknown>>, file: string, form: FileForm): void {
  if (form === 'patch') return;
  if (read['kind'] !== KIND) throw new Error(`${file} is not a ${KIND}`);
  if (form === 'drop-in' && read['apiVersion'] !== API_VERSION)
    throw new Error(`${file}: apiVersion is not ${API_VERSION}`);
}
