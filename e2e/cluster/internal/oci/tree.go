package oci

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// File is one program to put into a layer.
type File struct {
	From string // on this machine
	To   string // absolute, in the image
	Mode fs.FileMode
}

// Every entry has the same time, so that the same content gives the same layer.
var epoch = time.Unix(1, 0)

// AddFiles writes files, owned by root, and the folders above them.
func AddFiles(archive *tar.Writer, files []File) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.To, b.To) })
	made := map[string]bool{}
	for _, file := range files {
		if !path.IsAbs(file.To) || path.Clean(file.To) != file.To {
			return fmt.Errorf("%q is no clean absolute path", file.To)
		}
		var folders []string
		for folder := path.Dir(file.To); folder != "/" && !made[folder]; folder = path.Dir(folder) {
			made[folder] = true
			folders = append(folders, folder)
		}
		slices.Reverse(folders)
		for _, folder := range folders {
			header := tar.Header{Typeflag: tar.TypeDir, Name: folder[1:] + "/", Mode: 0o755, ModTime: epoch}
			if err := archive.WriteHeader(&header); err != nil {
				return err
			}
		}
		info, err := os.Stat(file.From)
		if err != nil {
			return err
		}
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: file.To[1:], Mode: int64(file.Mode.Perm()), Size: info.Size(), ModTime: epoch,
		}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		if err := copyFile(archive, file.From); err != nil {
			return err
		}
	}
	return nil
}

// AddTree writes a whole folder as the root of the image: files, links, hard links, owners and modes. Devices and
// sockets are left out (a container gets its own), and so is what skip names.
func AddTree(archive *tar.Writer, root string, skip func(name string) bool) error {
	type inode struct{ device, number uint64 }
	linked := map[inode]string{}
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if skip(name) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if name == "." || info.Mode()&(fs.ModeDevice|fs.ModeSocket|fs.ModeNamedPipe) != 0 {
			return nil
		}
		target := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if target, err = os.Readlink(file); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		header.Name = name
		if entry.IsDir() {
			header.Name += "/"
		}
		header.Uname, header.Gname, header.ModTime = "", "", epoch
		header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
		if status, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && status.Nlink > 1 {
			key := inode{uint64(status.Dev), status.Ino}
			if first, seen := linked[key]; seen {
				header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
			} else {
				linked[key] = name
			}
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if header.Typeflag != tar.TypeReg {
			return nil
		}
		return copyFile(archive, file)
	})
}

func copyFile(to io.Writer, from string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(to, file)
	return err
}

// AddFolders writes empty folders.
func AddFolders(archive *tar.Writer, names ...string) error {
	for _, name := range names {
		header := tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: epoch}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
	}
	return nil
}
