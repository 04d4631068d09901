-- From its commit on, every change of a row in this leaf is noted; it waits for the changes that are under way.
CREATE TRIGGER repartition_capture AFTER INSERT OR UPDATE OR DELETE ON pillarbox.{leaf}
    FOR EACH ROW EXECUTE FUNCTION pillarbox_repartition.captured();
INSERT INTO pillarbox_repartition.sources (leaf) VALUES ('pillarbox.{leaf}')
