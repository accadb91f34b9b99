// Rules of this project for `npm run check`, check `types and lint`. They are in .oxlintrc.json as `project/...`.

/** Returns a rule that reports what these selectors match. */
const forbid = (message, selectors) => ({
  create: (context) =>
    Object.fromEntries(selectors.map((selector) => [selector, (node) => context.report({ message, node })])),
});

const product = "BinaryExpression[operator='*'][right.value=1024]";

export default {
  meta: { name: 'project' },
  rules: {
    // The system's time may jump. One file reads it, for what is shown or stored; all else uses its steady clock.
    'steady-time': forbid('Use steadyNow, or wallTime for what is shown or stored.', [
      "NewExpression[arguments.length=0][callee.name='Date']",
      "CallExpression[callee.name='Date']",
      "MemberExpression[object.name='Date'][property.name='now']",
    ]),
    mebibytes: forbid('Use MiB of core/quantities.', [
      `${product}[left.value=1024]`,
      `${product}[left.right.value=1024]`,
      "BinaryExpression[operator='<<'][left.value=1][right.value=20]",
      "BinaryExpression[operator='**'][left.value=2][right.value=20]",
      "BinaryExpression[operator='**'][left.value=1024][right.value=2]",
      'Literal[value=1048576][raw=/^[0-9]/]',
    ]),
  },
};
