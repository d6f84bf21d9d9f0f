import static org.objectweb.asm.Opcodes.*;

import java.io.IOException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.MethodInsnNode;
import org.objectweb.asm.tree.MethodNode;

/**
 * Unpacks classes of enjarify so that they can run: it writes them as of Java 5, when interfaces had no
 * code, and does not compute how much of the stack a call needs.
 *
 * <p>Usage: {@code java Repair FOLDER BACK.jar PREFIX LIBRARY...}. Interfaces with code, and classes that
 * call it, become those of Java 8.
 */
public final class Repair {
    private final Map<String, ClassNode> classes = new TreeMap<>();
    private final Loader loader;

    private Repair(Loader loader) {
        this.loader = loader;
    }

    public static void main(String[] args) throws Exception {
        URL[] libraries = new URL[args.length - 3];
        for (int i = 0; i < libraries.length; i++) libraries[i] = url(args[i + 3]);
        try (Loader loader = new Loader(libraries)) {
            Repair repair = new Repair(loader);
            repair.read(Path.of(args[1]), args[2]);
            repair.write(Path.of(args[0]));
            System.out.println(repair.classes.size() + " classes");
        }
    }

    private static URL url(String file) throws MalformedURLException {
        return Path.of(file).toUri().toURL();
    }

    private void read(Path jar, String prefix) throws IOException {
        try (ZipFile archive = new ZipFile(jar.toFile())) {
            for (ZipEntry entry : Collections.list(archive.entries())) {
                if (!entry.getName().startsWith(prefix) || entry.isDirectory()) continue;
                ClassNode node = new ClassNode();
                new ClassReader(archive.getInputStream(entry)).accept(node, 0);
                classes.put(node.name, node);
            }
        }
        for (ClassNode node : classes.values()) loader.known.put(node.name.replace('/', '.'), outline(node));
    }

    /** A class without code, of which only its place among others matters. */
    private static byte[] outline(ClassNode node) {
        ClassWriter writer = new ClassWriter(0);
        writer.visit(V1_8, node.access, node.name, null, node.superName, node.interfaces.toArray(new String[0]));
        writer.visitEnd();
        return writer.toByteArray();
    }

    private void write(Path folder) throws IOException, ClassNotFoundException {
        for (ClassNode node : classes.values()) {
            boolean changes = hasCode(node) | markCalls(node);
            if (changes) node.version = V1_8;
            // enjarify reserves so much of the stack for each call that deep recursion overflows it.
            ClassWriter writer = changes ? new FramesWriter(loader) : new ClassWriter(ClassWriter.COMPUTE_MAXS);
            node.accept(writer);
            Path file = folder.resolve(node.name + ".class");
            Files.createDirectories(file.getParent());
            Files.write(file, writer.toByteArray());
        }
    }

    private static boolean hasCode(ClassNode node) {
        if ((node.access & ACC_INTERFACE) == 0) return false;
        return node.methods.stream().anyMatch(method -> (method.access & ACC_ABSTRACT) == 0);
    }

    /** Says of calls of an interface's code that it is an interface's; returns whether there are any. */
    private boolean markCalls(ClassNode node) throws ClassNotFoundException {
        boolean found = false;
        for (MethodNode method : node.methods) {
            for (AbstractInsnNode instruction : method.instructions) {
                int code = instruction.getOpcode();
                if (code != INVOKESTATIC && code != INVOKESPECIAL) continue;
                MethodInsnNode call = (MethodInsnNode) instruction;
                if (call.owner.startsWith("[") || !loader.isInterface(call.owner)) continue;
                call.itf = true;
                found = true;
            }
        }
        return found;
    }

    /** Knows what is an interface, and which class comes from which, without running any. */
    private static final class Loader extends URLClassLoader {
        final Map<String, byte[]> known = new TreeMap<>();

        Loader(URL[] libraries) {
            super(libraries);
        }

        boolean isInterface(String name) throws ClassNotFoundException {
            return Class.forName(name.replace('/', '.'), false, this).isInterface();
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            byte[] outline = known.get(name);
            return outline == null ? super.findClass(name) : defineClass(name, outline, 0, outline.length);
        }
    }

    /** Computes what the verifier of Java 8 wants to be given. */
    private static final class FramesWriter extends ClassWriter {
        private final ClassLoader loader;

        FramesWriter(ClassLoader loader) {
            super(COMPUTE_FRAMES);
            this.loader = loader;
        }

        @Override
        protected ClassLoader getClassLoader() {
            return loader;
        }
    }
}
