-- The ids of gates begin with the kind of the gate: see docs/decisions/0064. Older programs do not know these ids, and are not let in.
update flows set id = 'endpoint:' || substr(id, 11) where id > 'under-way:' and id < 'under-way;';
update flows set id = 'account:' where id = 'under-way:';
update messages set line = 'endpoint:' || substr(line, 11) where line > 'under-way:' and line < 'under-way;';
update messages set line = 'account:' where line = 'under-way:';
update messages set line = 'capacity:' || substr(line, 6) where line >= 'host:' and line < 'host;';
