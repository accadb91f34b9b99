import { expect, test } from 'vitest';
import { manifests, rights } from '../support/kubernetes/rights.ts';

test('KEP-6030: the role for annotations in Kubernetes allows to list and watch pods, get nodes and create events only', () => {
  expect([...rights].sort()).toEqual(['create events.events.k8s.io', 'get nodes', 'list pods', 'watch pods']);
});

test('the role is bound only to the service account of the shim', () => {
  const named = (kind: string) => manifests.filter((manifest) => manifest.kind === kind);
  const [role, account, binding] = [named('ClusterRole'), named('ServiceAccount'), named('ClusterRoleBinding')];
  expect([role.length, account.length, binding.length, manifests.length]).toEqual([1, 1, 1, 3]);
  expect(binding[0]?.roleRef).toMatchObject({ kind: 'ClusterRole', name: role[0]?.metadata.name });
  expect(binding[0]?.subjects).toEqual([{ kind: 'ServiceAccount', ...account[0]?.metadata }]);
});
