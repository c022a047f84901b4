/**
 * The parts of operations that the simulation and the differential test take: actors, checkers, mutants and
 * random commands. To drop an operation, delete its lines here, and what uses their names.
 */
export { makeAlertCommands } from "./alerts/simulated.ts";
export { AuditLogChecker } from "./auditLog/simulated/checker.ts";
export { auditMutants } from "./auditLog/simulated/mutants.ts";
export { JobChecker } from "./jobs/simulated/jobChecker.ts";
export { requestJob } from "./jobs/simulated/jobClients.ts";
export { makeJobCommand } from "./jobs/simulated/jobCommands.ts";
export { isContinuedByJob, isNamedByJob, listPortions } from "./jobs/simulated/jobEffects.ts";
export type { Histories } from "./jobs/simulated/jobEntries.ts";
export { NodeJobs } from "./jobs/simulated/nodeJobs.ts";
export { makeOutboxCommands } from "./outbox/simulated.ts";
export { makeSourceCommands } from "./sources/simulated.ts";
export { makeSeriesCommand } from "./unpublished/simulated.ts";
