import { readFileSync } from 'node:fs';
import { parseAllDocuments } from 'yaml';

/** An object of deploy/rbac.yaml, as far as tests look at it. */
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

/** What the shim's service account may do: `list pods`, `create events.events.k8s.io`. */
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
