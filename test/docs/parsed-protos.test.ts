import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import protobuf from 'protobufjs';
import { expect, test } from 'vitest';

// The program loads each .proto in parsed form. After a change, update it: `npx vitest run
// test/docs/parsed-protos.test.ts -u`.
test.each([
  ['runtime/v1/cri.proto', 'runtime/cri.proto.json'],
  ['criresize/v1alpha1/resize.proto', 'server/api/resize.proto.json'],
])('%s matches its parsed form', async (source, parsed) => {
  const text = readFileSync(fileURLToPath(new URL(`../../proto/${source}`, import.meta.url)), 'utf8');
  const { root, imports = [] } = protobuf.parse(text, new protobuf.Root(), { keepCase: true });
  // The library has the messages for durations and timestamps.
  for (const name of imports) root.addJSON(protobuf.common.get(name)?.nested ?? {});
  root.resolveAll();
  const json = `${JSON.stringify(root.toJSON(), null, 2)}\n`;
  await expect(json).toMatchFileSnapshot(fileURLToPath(new URL(`../../src/${parsed}`, import.meta.url)));
  // The parsed form has all fields.
  const again = protobuf.Root.fromJSON(JSON.parse(json) as protobuf.INamespace).resolveAll();
  expect(fieldsOf(again)).toEqual(fieldsOf(root));
  expect(fieldsOf(root).length).toBeGreaterThan(40);
});

/** Returns everything that affects the wire format, one line for each field and enum. */
function fieldsOf(namespace: protobuf.NamespaceBase): string[] {
  return namespace.nestedArray.flatMap((nested) => {
    if (nested instanceof protobuf.Enum) return [`${nested.fullName} ${JSON.stringify(nested.values)}`];
    const own = nested instanceof protobuf.Type ? nested.fieldsArray : [];
    const fields = own.map((field) => {
      const { fullName, id, type, repeated, packed, hasPresence, required, partOf } = field;
      const key = field instanceof protobuf.MapField ? field.keyType : undefined;
      return JSON.stringify({
        fullName,
        id,
        type,
        key,
        repeated,
        packed,
        hasPresence,
        required,
        oneof: partOf?.fullName,
      });
    });
    return [...fields, ...(nested instanceof protobuf.Namespace ? fieldsOf(nested) : [])];
  });
}
