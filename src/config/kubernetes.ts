import * as z from 'zod';
import { absolutePath, pathForm } from './path.ts';

/** Said instead of a file by a shim that runs as a pod. */
const inCluster = 'in-cluster';
export const kubeconfigForm = `${pathForm}, or ${inCluster} for the service account of the pod that this runs in; empty for none`;

/** An absolute path, `in-cluster` or nothing. */
export const kubeconfig = z.string().transform((text, context) => {
  if (text === '' || text === inCluster) return text;
  const path = absolutePath.safeParse(text);
  if (path.success) return path.data;
  context.addIssue({ code: 'custom', message: `must be ${kubeconfigForm}` });
  return z.NEVER;
});

/** Names of nodes (RFC 1123). Part of a field selector, so nothing else goes in there. */
export const nodeNameForm = 'the name of a node: lower-case letters, digits, "-" and "."';
export const nodeName = z.string().transform((text, context) => {
  if (text === '' || /^[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?$/.test(text)) return text;
  context.addIssue({ code: 'custom', message: `must be ${nodeNameForm}` });
  return z.NEVER;
});
