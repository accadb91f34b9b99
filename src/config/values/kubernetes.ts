import { fromText } from './from-text.ts';
import { pathForm, readAbsolutePath } from './path.ts';

/** Used instead of a file by a shim that runs as a pod. */
const inCluster = 'in-cluster';
export const kubeconfigForm = `${pathForm}, ${inCluster} to use the service account of the pod, or empty for none`;

/** An absolute path, `in-cluster` or an empty string. */
export const kubeconfig = fromText((text, refuse) =>
  text === '' || text === inCluster ? text : (readAbsolutePath(text) ?? refuse(`must be ${kubeconfigForm}`)),
);

/** Names of nodes (RFC 1123). The name becomes part of a field selector, so other characters are not safe. */
export const nodeNameForm = 'a node name: lower-case letters, digits, "-" and "."';
export const nodeNamePattern = /^[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?$/;
export const nodeName = fromText((text, refuse) =>
  text === '' || nodeNamePattern.test(text) ? text : refuse(`must be ${nodeNameForm}`),
);
