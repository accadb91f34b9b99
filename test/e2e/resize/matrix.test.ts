import { groups, matrixCases } from '../../matrix/cases.ts';
import { defineMatrix } from '../../matrix/define.ts';

// One case of each group, in all ways. The suite `matrix` runs all cases in all ways.
defineMatrix(groups.map((group) => matrixCases.find((each) => each.group === group)!));
