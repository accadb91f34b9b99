import { readFileSync } from 'node:fs';
import { parseAllDocuments } from 'yaml';

/** The fields of an object of deploy/rbac.yaml that tests read. */
interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly rules?: readonly {
    readonly apiGroups: readonly string[];
    readonly resources: readonly string[];
    readonly verbs: readonly string[];
  }[];
  readonly roleRef?: { readonly kind: string; readonly name: string };
  readonly subjects?: readonly { readonly kind: string; readonly name: string; readonly namespace: string }[];
}

export const manifests = parseAllDocuments(readFileSync('deploy/rbac.yaml', 'utf8')).map(
  (document) => document.toJS() as Manifest,
);

/** The rights of the shim's service account: `list pods`, `create events.events.k8s.io`. */
export const rights: ReadonlySet<string> = new Set(
  manifests
    .flatMap(({ rules = [] }) => rules)
    .flatMap(({ apiGroups, resources, verbs }) =>
      apiGroups.flatMap((group) =>
        resources.flatMap((resource) =>
          verbs.map((verb) => `${verb} ${group === '' ? resource : `${resource}.${group}`}`),
        ),
      ),
    ),
);
